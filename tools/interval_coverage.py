"""How often nominal 95 % intervals hold the truth, in simulation: the table of docs/rows.md.

    python tools/interval_coverage.py --trials 4000

Values of S networks have three kinds of noise: shared image noise (all saw the same images), own image noise (each errs
on images of its own) and seed noise. Resamples of the images show the first two, and the seeds the last two.
"""

import argparse
from collections.abc import Mapping

import numpy as np

from shiftprism.rows import RESAMPLES, Effect

KINDS = ("shared", "own", "seed")
NOISES: dict[str, dict[str, float]] = {
    "shared image noise": {"shared": 1.0},
    "own image noise": {"own": 1.0},
    "seed noise": {"seed": 1.0},
    "shared and own": {"shared": 1.0, "own": 1.0},
    "shared and seed": {"shared": 1.0, "seed": 1.0},
    "own and seed": {"own": 1.0, "seed": 1.0},
    "all three": {"shared": 1.0, "own": 1.0, "seed": 1.0},
}


def cover(trials: int, seeds: int, noise: Mapping[str, float], *, against: int = 0, rng: np.random.Generator) -> float:
    """The share of intervals that hold the truth, 0; of a difference if `against` is the seeds of another model."""
    shared, own, seed = (noise.get(kind, 0.0) for kind in KINDS)
    held = 0
    for _ in range(trials):
        luck = shared * rng.standard_normal()
        common = shared * rng.standard_normal(RESAMPLES)

        def draw(model: str, count: int, share: float, luck: float = luck, common: np.ndarray = common) -> Effect:
            values = share * luck + np.hypot(own, seed) * rng.standard_normal(count)
            resamples = values[:, None] + share * common + own * rng.standard_normal((count, RESAMPLES))
            return Effect.of(dict(enumerate(values)), dict(enumerate(resamples)), model, 1)

        effect = draw("one", seeds, 1.0)
        if against:
            effect = effect - draw("other", against, 0.5)  # another model errs on some of the same images
        held += effect.low <= 0 <= effect.high
    return held / trials


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000)
    trials = parser.parse_args().trials
    columns = [(1, 0), (2, 0), (3, 0), (5, 0), (2, 2), (3, 3), (5, 5), (5, 2), (5, 1)]
    print("| noise | " + " | ".join(f"{a} − {b}" if b else f"{a}" for a, b in columns) + " |")
    print("|---|" + "--:|" * len(columns))
    for name, noise in NOISES.items():
        shares = [cover(trials, a, noise, against=b, rng=np.random.default_rng(0)) for a, b in columns]
        print(f"| {name} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
