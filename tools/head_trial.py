r"""Which way of training detects best: LogitNorm, T2FNorm and rotation prediction, each with and without PixMix.

    python tools/head_trial.py plain=runs/plain logit-norm=runs/logit-norm … --root DATA --cache runs/head-trial

Each NAME=RUN is the folder of a finished run on CIFAR-10. Printed are two tables in Markdown: the accuracy on the test
set and on twelve corrupted sets, and the AUROC of the test set against CIFAR-100, SVHN, Tiny ImageNet and the corrupted
sets. `knn` is fitted to training images of the run (without those it held out), as they are. Outputs are kept in
--cache and computed again where the weights or images are others. One seed says nothing about noise: train what gains
with three seeds.

The runs of the trial, twelve epochs each (with rotation an epoch takes 1.5 times as long), and the two to compare with:

    shiftprism train --data cifar10 --root DATA --backbone fast --head logit-norm --preset laptop --out runs/logit-norm
    shiftprism train --data cifar10 --root DATA --backbone fast --head logit-norm --preset laptop-robust \
        --out runs/logit-norm-pixmix
    shiftprism train --data cifar10 --root DATA --backbone fast --head t2f-norm --preset laptop --out runs/t2f-norm
    shiftprism train --data cifar10 --root DATA --backbone fast --head t2f-norm --preset laptop-robust \
        --out runs/t2f-norm-pixmix
    shiftprism train --data cifar10 --root DATA --backbone fast --head vanilla --rotation 0.5 --preset laptop \
        --out runs/rotation
    shiftprism train --data cifar10 --root DATA --backbone fast --head vanilla --rotation 0.5 --preset laptop-robust \
        --out runs/rotation-pixmix

    shiftprism train --data cifar10 --root DATA --backbone fast --head vanilla --preset laptop --out runs/plain
    shiftprism train --data cifar10 --root DATA --backbone fast --head vanilla --preset laptop-robust --out runs/pixmix
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from shiftprism import Classifier, predict
from shiftprism._errors import wrong
from shiftprism.benchmark import take_evenly
from shiftprism.datasets import Dataset, load
from shiftprism.metrics import auroc
from shiftprism.report import Cell, Table, to_markdown
from shiftprism.scores import SCORES
from shiftprism.shifts import Shift, covariate, suite
from shiftprism.training import read_run_settings, split_held_out

NAMES = ("u", "h", "g", "msp", "energy", "gen", "knn")
CORRUPTIONS = ("gaussian_noise", "motion_blur", "contrast", "frost", "jpeg_compression", "elastic_transform")
SEVERITIES = (3, 5)


class Measured(NamedTuple):
    """What one model does: accuracy by set, and by score the AUROC by set."""

    accuracy: dict[str, float]
    auroc: dict[str, dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN", type=read_run)
    parser.add_argument("--root", type=Path, help="Where the data are.")
    parser.add_argument("--cache", type=Path, help="Where Outputs are kept.")
    parser.add_argument("--images", type=int, default=1000, help="Images of each corrupted set.")
    parser.add_argument("--others", type=int, default=10_000, help="The most images of each other set.")
    parser.add_argument("--bank", type=int, default=10_000, help="Training images for knn.")
    words = parser.parse_args()
    models = {name: Classifier.load(run) for name, run in words.runs}  # one that is missing is an error at once
    test = load("cifar10", "test", words.root)
    few = take_evenly(test, words.images)
    shifts = [*suite("near-far", test, root=words.root), *covariate(few, CORRUPTIONS, SEVERITIES)]
    clean = take_evenly(test, words.others)
    # made once for all models; Tiny ImageNet and others are sorted by class, so images are taken evenly
    sets = {describe(shift): take_evenly(shift.make(), words.others) for shift in shifts}
    corrupted = [describe(shift) for shift in shifts if shift.kind == "covariate"]
    rows = {}
    for name, run in words.runs:
        held_out = float(read_run_settings(run).get("held_out", 0.1))
        known = take_evenly(split_held_out("cifar10", held_out, words.root)[0], words.bank)
        rows[name] = measure(models[name], known, clean, sets, corrupted, words.cache and words.cache / name)
    for table in make_tables(rows, corrupted):
        print(to_markdown(table))


def read_run(word: str) -> tuple[str, Path]:
    """NAME=RUN, the name and the folder."""
    name, _, folder = word.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError(str(wrong("run", "NAME=RUN", word, "name the run, as in plain=runs/plain")))
    return name, Path(folder)


def describe(shift: Shift) -> str:
    return f"{shift.name} {shift.severity}" if shift.severity else shift.name


def measure(
    classifier: Classifier,
    known: Dataset,
    clean: Dataset,
    sets: Mapping[str, Dataset],
    labelled: Sequence[str],
    cache: Path | None = None,
) -> Measured:
    """The accuracy on `clean` and on the `labelled` sets, and the AUROC of `clean` against each set.

    Scores that are fitted are fitted to `known`.
    """
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
    data = {"known": known, "clean": clean, **sets}
    files = {name: None if cache is None else cache / f"{name.replace(' ', '-')}.safetensors" for name in data}
    outputs = {name: predict(classifier, one, cache=files[name])[0] for name, one in data.items()}
    accuracy = {
        name: float((outputs[name].predictions == data[name].labels).double().mean()) for name in ("clean", *labelled)
    }
    scores = {name: SCORES[name].fit(outputs["known"], known.labels, head=classifier.head) for name in NAMES}
    areas = {}
    for name, score in scores.items():
        inside = score(outputs["clean"])
        areas[name] = {other: auroc(inside, score(outputs[other])) for other in sets}
    return Measured(accuracy, areas)


def make_tables(rows: Mapping[str, Measured], corrupted: Sequence[str]) -> list[Table]:
    """Accuracy and AUROC in per cent; "corrupted" is the mean over the corrupted sets."""
    first = next(iter(rows.values()))
    others = [name for name in first.auroc[NAMES[0]] if name not in corrupted]
    accuracies = [[Cell(run), *percents(row.accuracy, ["clean"], corrupted)] for run, row in rows.items()]
    # the runs next to each other, because they are what is compared
    areas = [
        [Cell(score), Cell(run), *percents(row.auroc[score], others, corrupted)]
        for score in NAMES
        for run, row in rows.items()
    ]
    note = "Per cent. Corrupted: the mean over the sets to its right, named with their severity. One seed."
    return [
        Table("Accuracy", note, ["run", "clean", "corrupted", *corrupted], accuracies, 1),
        Table("AUROC", note, ["score", "run", *others, "corrupted", *corrupted], areas, 2),
    ]


def percents(values: Mapping[str, float], names: Sequence[str], corrupted: Sequence[str]) -> list[Cell]:
    """Cells of the values of `names`, of the mean over the corrupted sets, and of each of these."""
    each = [values[name] for name in corrupted]
    return [Cell(f"{100 * value:.1f}") for value in (*(values[name] for name in names), fmean(each), *each)]


if __name__ == "__main__":
    main()
