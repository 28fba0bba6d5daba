"""Observations a second, of ours and of river's detectors, on one core in one run: python speed/monitor.py

Verdicts come in batches of 20,000, in batches of 64 with a status each, and one at a time with a status each. Both axes
are tested; river's detectors are fed both scores, too. `pip install river` for the comparison. CPU time of the process.
"""

import os
import time
from collections.abc import Callable

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402

from shiftprism.monitor import Monitor  # noqa: E402
from shiftprism.verdicts import Reference, Verdicts  # noqa: E402


def make(classes: int, n: int) -> tuple[Reference, Verdicts]:
    """A reference of 2,000 and n verdicts without any shift."""
    rng = np.random.default_rng(0)
    edges = np.sort(rng.normal(size=(2, 127)), axis=1)
    held, labels = rng.normal(size=(2, 2000)), rng.integers(classes, size=2000)
    counts = np.zeros((2, classes, 128), np.int64)
    for axis in range(2):
        np.add.at(counts[axis], (labels, np.searchsorted(edges[axis], held[axis])), 1)
    names = tuple(map(str, range(classes)))
    reference = Reference("", names, edges[0], edges[1], counts[0], counts[1], held.T[:500], 0.05, 0.9, calibrated=True)
    style, concept = rng.normal(size=(2, n))
    ones, kinds = np.ones(n), np.full(n, "in-distribution")
    return reference, Verdicts(rng.integers(classes, size=n), 0.9 * ones, style, concept, ones, ones, ones, kinds)


def rate(run: Callable[[], None], n: int) -> float:
    start = time.process_time()
    run()
    return n / (time.process_time() - start)


def feed(reference: Reference, verdicts: Verdicts, batch: int, look: bool, within_class: bool) -> None:
    monitor = Monitor(reference, within_class=within_class)
    for start in range(0, len(verdicts), batch):
        monitor.update(verdicts[start : start + batch])
        if look:
            monitor.status()


def main() -> None:
    print("| | observations a second |\n|---|---|")
    for classes, within in ((10, False), (10, True), (1000, True)):
        reference, verdicts = make(classes, 200_000)
        name = f"{classes} classes{', ranks within classes' if within else ''}"
        whole = rate(lambda: feed(reference, verdicts, 20_000, False, within), 200_000)  # noqa: B023
        print(f"| ours, {name}, batches of 20,000 | {whole:,.0f} |", flush=True)
        if classes == 10 and not within:
            ours = whole
            few = rate(lambda: feed(reference, verdicts[:20_000], 64, True, within), 20_000)  # noqa: B023
            print(f"| ours, {name}, batches of 64 and a status each | {few:,.0f} |", flush=True)
            one = rate(lambda: feed(reference, verdicts[:2000], 1, True, within), 2000)  # noqa: B023
            print(f"| ours, {name}, one at a time and a status each | {one:,.0f} |", flush=True)
    try:
        from river import drift  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return
    _, verdicts = make(10, 20_000)
    for kind, n in ((drift.ADWIN, 20_000), (drift.PageHinkley, 20_000), (drift.KSWIN, 300)):

        def run(kind: type = kind, n: int = n) -> None:
            for scores in (verdicts.style[:n].tolist(), verdicts.concept[:n].tolist()):
                detector = kind()
                for value in scores:
                    detector.update(value)

        theirs = rate(run, n)
        print(f"| river's {kind.__name__} on both scores | {theirs:,.0f} (ours: × {ours / theirs:.2g}) |", flush=True)


if __name__ == "__main__":
    main()
