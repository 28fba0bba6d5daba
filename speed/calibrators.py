"""Synthetic logits whose optimum is known, and how near and how fast ours gets: python speed/calibrators.py

`draw_sample` draws features f = relu(normal) in 64 dimensions, logits z = W f, and labels from
softmax(v ∘ z/2.98 + b + M z/2.98) with v, b or M switched off by `truth`. The optimum of a fit set is taken from scipy,
run to a gradient of 1e-9 on the plain NLL in float64; the NLL of the true distribution bounds what any calibrator can
reach on test data. One thread: small arrays gain nothing from two.
"""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from shiftprism.calibrators import AlphaBeta, Calibrator, Dirichlet, Matrix, Monotone, Penalty, Temperature, Vector
from shiftprism.metrics import ece, nll
from shiftprism.outputs import Outputs

SIZES = ((10_000, 10), (10_000, 100))
Truth = Literal["temperature", "vector", "matrix"]
Labels = NDArray[np.int64]


class Sample(NamedTuple):
    """Outputs in float32, as a network gives them, labels, and the probabilities the labels were drawn from."""

    outputs: Outputs
    labels: Labels
    true: NDArray[np.float64]


def draw_sample(samples: int, classes: int, truth: Truth = "matrix", seed: int = 0) -> Sample:
    """A draw of `samples`; the model is the same for every seed."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(1)
    weight = fixed.normal(size=(classes, 64)) * 6 / 8
    v, b = np.exp(0.2 * fixed.normal(size=classes)), 0.5 * fixed.normal(size=classes)
    mixing = 0.3 / np.sqrt(classes) * fixed.normal(size=(classes, classes))
    features = np.maximum(rng.normal(size=(samples, 64)), 0)
    z = features @ weight.T
    z -= z.mean(1, keepdims=True)
    logits = z / 2.98
    if truth != "temperature":
        logits = logits * v + b
    if truth == "matrix":
        logits += z @ mixing.T / 2.98
    true = np.exp(logits - logits.max(1, keepdims=True))
    true /= true.sum(1, keepdims=True)
    labels = (logits + rng.gumbel(size=z.shape)).argmax(1)
    f, raw = torch.from_numpy(features).float(), torch.from_numpy(z).float()
    norms = f.norm(dim=1)
    return Sample(Outputs(f, norms, raw / norms[:, None], raw, raw), labels, true)


def fixed_penalty(samples: int, classes: int, shrink: bool) -> Penalty:
    """The one λ, μ, ν of the comparison: a tenth of the reference strength, at a temperature of 3."""
    return Penalty(*(weight / 10 for weight in Penalty.reference(classes, samples, 3.0, shrink)))


def optimal_nll(sample: Sample, per_class: bool) -> float:
    """The least mean NLL of z/T, or of v ∘ z + b, that scipy finds from T = 3."""
    z, labels = sample.outputs.logits.double().numpy(), sample.labels
    rows, classes = np.arange(len(z)), z.shape[1]

    def objective(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale, bias = (theta[:classes], theta[classes:]) if per_class else (theta[0], 0.0)
        logits = z * scale + bias
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1)
        loss = float((np.log(total) - logits[rows, labels]).mean())
        p /= total[:, None]
        p[rows, labels] -= 1
        if per_class:
            return loss, np.concatenate([(p * z).mean(0), p.mean(0)])
        return loss, np.array([(p * z).sum(1).mean()])

    start = np.concatenate([np.full(classes, 1 / 3), np.zeros(classes)]) if per_class else np.array([1 / 3])
    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 3000})
    return float(found.fun)


def time_fit(fit: Callable[[], Calibrator], rounds: int = 5) -> tuple[Calibrator, float]:
    """The fitted calibrator and the best time, in ms."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        fitted = fit()
        best = min(best, time.perf_counter() - begin)
    return fitted, 1e3 * best


def contenders(sample: Sample) -> dict[str, Callable[[], Calibrator]]:
    """Our fits by name."""
    outputs, labels = sample.outputs, sample.labels
    shrunk, odir = (fixed_penalty(outputs.N, outputs.K, shrink) for shrink in (True, False))
    return {
        "temperature": lambda: Temperature.fit(outputs, labels),
        "vector": lambda: Vector.fit(outputs, labels),
        "matrix, given": lambda: Matrix.fit(outputs, labels, penalty=shrunk),
        "dirichlet, given": lambda: Dirichlet.fit(outputs, labels, penalty=odir),
        "matrix, path": lambda: Matrix.fit(outputs, labels),
        "dirichlet, path": lambda: Dirichlet.fit(outputs, labels),
        "alpha-beta": lambda: AlphaBeta.fit(outputs, labels),
        "monotone": lambda: Monotone.fit(outputs, labels),
    }


def main() -> None:
    torch.set_num_threads(1)
    for samples, classes in SIZES:
        print(f"\n{samples} x {classes}: distance of the fit set's NLL from the optimum scipy finds")
        for truth, kind in (("temperature", Temperature), ("vector", Vector)):
            sample = draw_sample(samples, classes, truth)  # type: ignore[arg-type]
            fitted, _ = time_fit(lambda: kind.fit(sample.outputs, sample.labels), 1)  # noqa: B023
            best = optimal_nll(sample, kind is Vector)
            after = fitted.report.nll_after
            print(f"  {kind.__name__:<12} {after:.9f} - {best:.9f} = {after - best:+.1e}")
        sample, test = draw_sample(samples, classes), draw_sample(samples, classes, seed=5)
        print(f"  labels by a matrix; the true distribution has test NLL {nll(test.true, test.labels):.6f}")
        for name, fit in contenders(sample).items():
            fitted, ms = time_fit(fit, 1 if "path" in name else 3)
            p = fitted.probabilities(test.outputs)
            report = fitted.report
            print(
                f"  {name:<17}{ms:9.1f} ms  test NLL {nll(p, test.labels):.6f}  ECE {ece(p, test.labels):.4f}  "
                f"converged {report.converged}, {report.iterations} iterations  {report.note}",
                flush=True,
            )


if __name__ == "__main__":
    main()
