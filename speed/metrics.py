"""Time of auroc and ece beside scikit-learn's answer and a plain loop: python speed/metrics.py

The contenders take turns and the best of several rounds counts, so that a busy machine slows all of them alike.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score

from shiftprism.metrics import auroc, ece

ROUNDS = 7
Scores = np.ndarray[tuple[int], np.dtype[np.float64]]
Probabilities = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Labels = np.ndarray[tuple[int], np.dtype[np.int64]]


def sklearn_auroc(id: Scores, ood: Scores) -> float:
    labels = np.concatenate([np.ones(len(id)), np.zeros(len(ood))])
    return float(roc_auc_score(labels, np.concatenate([id, ood])))


def loop_auroc(id: Scores, ood: Scores) -> float:
    """Every ID score against all OOD scores."""
    return sum(float((ood < score).sum() + 0.5 * (ood == score).sum()) for score in id) / (len(id) * len(ood))


def sklearn_ece(probabilities: Probabilities, labels: Labels) -> float:
    """From calibration_curve, which drops empty bins and keeps the counts to itself; they are counted here."""
    predicted = probabilities.argmax(1)
    confidence, correct = probabilities[np.arange(len(labels)), predicted], predicted == labels
    accuracy, mean = calibration_curve(correct, confidence, n_bins=15)
    counts = np.histogram(confidence, np.linspace(0, 1, 16))[0]
    return float(np.sum(counts[counts > 0] * np.abs(accuracy - mean)) / len(labels))


def loop_ece(probabilities: Probabilities, labels: Labels) -> float:
    """A mask for each bin, as the usual snippet has it."""
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == labels
    total = 0.0
    for bin in range(15):
        inside = (confidence > bin / 15) & (confidence <= (bin + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return float(total)


def compare(title: str, contenders: Mapping[str, Callable[[], float]]) -> None:
    best = dict.fromkeys(contenders, float("inf"))
    values = {}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            start = time.perf_counter()
            values[name] = run()
            best[name] = min(best[name], time.perf_counter() - start)
    ours = best["shiftprism"]
    print(title)
    for name, seconds in best.items():
        print(f"  {name:<13}{1e3 * seconds:10.2f} ms  {seconds / ours:8.1f} x   value {values[name]:.6f}")


def main() -> None:
    rng = np.random.default_rng(0)
    id, ood = rng.normal(1, 1, 10_000), rng.normal(0, 1, 26_000)
    compare(
        "AUROC, 10,000 + 26,000 scores",
        {
            "shiftprism": lambda: auroc(id, ood),
            "scikit-learn": lambda: sklearn_auroc(id, ood),
            "loop": lambda: loop_auroc(id, ood),
        },
    )
    logits = rng.normal(0, 2, (50_000, 10))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = rng.integers(0, 10, 50_000)
    compare(
        "ECE, 50,000 x 10, 15 bins",
        {
            "shiftprism": lambda: ece(probabilities, labels),
            "scikit-learn": lambda: sklearn_ece(probabilities, labels),
            "loop": lambda: loop_ece(probabilities, labels),
        },
    )


if __name__ == "__main__":
    main()
