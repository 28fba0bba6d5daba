"""Does the paper's effect show at the size of the laptop preset?

python tools/effect.py RUN... --root DATA, with finished runs of `shiftprism train --data cifar10 --preset laptop`,
vanilla and alpha-beta, some seeds each. 2,000 evenly spaced images of each set; scores that need no fit.
"""

import argparse
from pathlib import Path
from statistics import fmean, stdev

import torch

from shiftprism.benchmark import Row, Source, gather, measure
from shiftprism.benchmark._suites import few
from shiftprism.classifier import Classifier
from shiftprism.datasets import load
from shiftprism.shifts import Shift, covariate
from shiftprism.training.runs import split
from shiftprism.training.settings import Training, read_settings

IMAGES = 2000


def rows_of(folder: Path, root: Path | None) -> list[Row]:
    config = read_settings(folder / "config.toml")
    classifier = Classifier.load(folder)
    test = few(load("cifar10", "test", root), IMAGES)
    held = few(split("cifar10", Training(held_out=config["held_out"]), root)[1], IMAGES)
    near, far = (few(load(name, "test", root), IMAGES) for name in ("cifar100", "svhn"))
    shifts = [Shift("cifar100", "concept", 0, lambda: near), Shift("svhn", "both", 0, lambda: far)]
    shifts += [*covariate(test, ["motion_blur"], [5]), *covariate(test, ["contrast"], [3])]
    names = (config["head"], "cifar10", config["backbone"], config["head"], config["seed"], "held-out")
    found = gather(Source(*names, classifier.fingerprint()[:12]), classifier, held, test, shifts)
    print(f"{config['head']}, seed {config['seed']}: forwarded", flush=True)
    return [row for row in measure(found).rows if row.metric == "auroc"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--root", type=Path, default=None)
    words = parser.parse_args()
    rows = [row for folder in words.runs for row in rows_of(folder, words.root)]
    print("\n| model | score | CIFAR-100 | SVHN | motion blur 5 | contrast 3 |\n|---|---|---|---|---|---|")
    for model, score in dict.fromkeys((row.model, row.subject) for row in rows):
        cells = []
        for shift, severity in (("cifar100", 0), ("svhn", 0), ("motion_blur", 5), ("contrast", 3)):
            where = (model, score, shift, severity)
            own = [100 * r.value for r in rows if (r.model, r.subject, r.shift, r.severity) == where]
            cells.append(f"{fmean(own):.1f}" + (f" ± {stdev(own):.1f}" if len(own) > 1 else ""))
        print(f"| {model} | {score} | {' | '.join(cells)} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
