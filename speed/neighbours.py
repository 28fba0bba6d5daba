"""Recall and speed of approximate neighbours beside exact ones: python speed/neighbours.py (extra faiss)

    python speed/neighbours.py                                       synthetic features, banks up to a million rows
    python speed/neighbours.py --banks 20000 --queries 500           a small run
    python speed/neighbours.py --data FOLDER --images 50000          features of CIFAR-10 by the bundled network

Exact and approximate search take turns in each round, and the best of each counts. Recall is the share of the true k
nearest that are found; the error is that of the score, the k-th distance, which is never too small. AUROC is that of
the bank's own kind of queries against queries of unseen clusters (synthetic) or SVHN (CIFAR-10).
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import KNN, ApproximateKNN
from shiftprism.scores._neighbours import directions

ROUNDS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banks", type=int, nargs="+", default=[50_000, 200_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--probes", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--data", type=Path, help="with CIFAR-10 and SVHN; in place of synthetic features")
    parser.add_argument("--images", type=int, default=50_000, help="of CIFAR-10's training set, for the bank")
    words = parser.parse_args()
    titles = "features, bank, fit s, probes, recall, largest error, AUROC exact, approximate, exact s, times faster"
    print(f"| {titles.replace(', ', ' | ')} |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    if words.data:
        known, new, other = read_features(words.data, words.images, words.queries)
        compare(f"CIFAR-10, D {known.shape[1]}", known, new, other, words.k, words.probes)
        return
    for bank in words.banks:
        known, new, other = draw_features(bank, words.queries, words.width)
        compare(f"synthetic, D {words.width}", known, new, other, words.k, words.probes)


def compare(what: str, known: Tensor, new: Tensor, other: Tensor, k: int, probes: list[int]) -> None:
    """A row of the table for each number of probes."""
    bank, queries, others = (wrap(features) for features in (known, new, other))
    exact = KNN.fit(bank, k=k, bank=len(known))
    truth, truth_of_others = exact(queries), exact(others)
    area = auroc(truth, truth_of_others)
    nearest = find_nearest(new, exact.bank, k)
    began = time.perf_counter()
    fitted = ApproximateKNN.fit(bank, k=k, bank=len(known), probes=1)
    fitted(queries.rows(slice(0, 1)))
    seconds = time.perf_counter() - began
    for number in probes:
        score = ApproximateKNN(fitted.state_dict(), k=k, probes=min(number, len(fitted.centroids)))
        score.__dict__["_index"] = fitted._open_index()  # the same index, made once
        found = score(queries)
        _, numbers = score._open_index().search(directions(new).numpy(), k)
        recall = count_common(torch.from_numpy(numbers), nearest) / nearest.numel()
        best = take_turns({"exact": partial(exact, queries), "approximate": partial(score, queries)})
        error = float((truth - found).max())
        print(
            f"| {what} | {len(known):,} | {seconds:.1f} | {number} | {recall:.3f} | {error:.3f} | "
            f"{100 * area:.2f} | {100 * auroc(found, score(others)):.2f} | {best['exact']:.3f} | "
            f"{best['exact'] / best['approximate']:.1f} |",
            flush=True,
        )


def take_turns(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of the fastest of several rounds."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - began)
    return found


def find_nearest(new: Tensor, bank: Tensor, k: int) -> Tensor:
    """(N, k): the rows of the bank with the largest products."""
    return torch.cat([(directions(part) @ bank.T).topk(k).indices for part in new.split(64)])


def count_common(found: Tensor, true: Tensor) -> int:
    """How many of the true neighbours were found."""
    return sum(len(set(one) & set(other)) for one, other in zip(found.tolist(), true.tolist(), strict=True))


def wrap(features: Tensor) -> Outputs:
    """Features as Outputs; neighbours read nothing else."""
    logits = torch.zeros(len(features), 10)
    return Outputs(features, features.norm(dim=1), logits, logits, logits)


def draw_features(bank: int, queries: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """1,000 classes whose features vary in 32 directions of their own, and some noise; others are of unseen classes."""
    generator = torch.Generator().manual_seed(0)
    known = draw_classes(bank + queries, 1000, width, generator)
    return known[:bank], known[bank:], draw_classes(queries, 200, width, generator)


def draw_classes(rows: int, classes: int, width: int, generator: torch.Generator) -> Tensor:
    found = torch.empty(rows, width)
    numbers = torch.randint(classes, (rows,), generator=generator)
    for number in range(classes):
        own = (numbers == number).nonzero().squeeze(1)
        mean, span = torch.randn(width, generator=generator), torch.randn(32, width, generator=generator)
        noise = 0.1 * torch.randn(len(own), width, generator=generator)
        found[own] = (mean + 0.15 * torch.randn(len(own), 32, generator=generator) @ span + noise).relu()
    return found


def read_features(root: Path, images: int, queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the bundled network says about CIFAR-10's training images, its test images, and SVHN."""
    from shiftprism.classifier import predict
    from shiftprism.datasets import load
    from shiftprism.detector import Detector

    classifier = Detector.load("cifar10").classifier
    assert classifier is not None
    sets = [("cifar10", "train", images), ("cifar10", "test", queries), ("svhn", "test", queries)]
    data = [load(name, split, root=root).images[:most] for name, split, most in sets]
    known, new, other = (predict(classifier, one)[0].features for one in data)
    return known, new, other


if __name__ == "__main__":
    main()
