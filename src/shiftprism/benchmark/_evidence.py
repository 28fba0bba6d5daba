"""What one trained model says about every set, for tables, figures and rows: each image was forwarded once."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from shiftprism._checks import choice
from shiftprism.benchmark._plan import file_name
from shiftprism.benchmark._rows import read_rows
from shiftprism.calibrators import CALIBRATORS, Calibrator
from shiftprism.calibrators import load as load_calibrator
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset, load
from shiftprism.outputs import Outputs
from shiftprism.shifts import Kind, Shift


class Source(NamedTuple):
    """Where numbers come from: the first fields of a Row, and the weights' fingerprint."""

    model: str
    data: str
    backbone: str
    head: str
    seed: int
    protocol: str
    weights: str


class Evidence(NamedTuple):
    """What one trained model says about every set: each image was forwarded once."""

    source: Source
    clean: Outputs
    labels: Tensor
    calibrators: Mapping[str, Calibrator]
    shifted: Sequence[tuple[Shift, Outputs, Tensor]]

    @property
    def model(self) -> str:
        """What is compared."""
        return self.source.model

    @property
    def seed(self) -> int:
        """Of the training run."""
        return self.source.seed


def gather(
    source: Source,
    classifier: Classifier,
    validation: Dataset,
    test: Dataset,
    shifts: Iterable[Shift],
    calibrators: Sequence[str] = ("temperature", "alpha-beta"),
) -> Evidence:
    """Forward the clean and the shifted images once, and fit the named calibrators on the validation set."""
    held, _ = predict(classifier, validation)
    clean, _ = predict(classifier, test)
    kinds = {choice("calibrators", name, CALIBRATORS): CALIBRATORS[name] for name in calibrators}
    fitted = {name: kind.fit(held, validation.labels) for name, kind in kinds.items()}
    shifted = []
    for shift in shifts:
        data = shift.make()
        shifted.append((shift, predict(classifier, data)[0], data.labels))
    return Evidence(source, clean, test.labels, fitted, shifted)


def evidence(
    folder: str | Path, model: str, seed: int | None = None, data: str | None = None, most: int = 1000
) -> Evidence:
    """What a model of a folder of results says, of the first `most` images of each set.

    Without a `seed` its first is taken, without `data` the first data set it has; FileNotFoundError where it has none.
    """
    folder = Path(folder)
    for file in sorted((folder / "cells").glob("*/rows.jsonl")):
        row = next(iter(read_rows(file)), None)
        has = (file.parent / "outputs" / file_name("clean", 0)).exists()  # rows alone may have come from elsewhere
        if has and row is not None and row.model == model and seed in (None, row.seed) and data in (None, row.data):
            return _stored(file.parent, most)
    there = ", ".join(sorted(path.parent.name for path in (folder / "cells").glob("*/rows.jsonl"))) or "none"
    asked = f"{model}, seed {'any' if seed is None else seed}, data {data or 'any'}"
    raise FileNotFoundError(f"{folder} has no outputs of {asked}; it has {there}")


def _stored(cell: Path, most: int) -> Evidence:
    rows = read_rows(cell / "rows.jsonl")
    first = rows[0]
    source = Source(first.model, first.data, first.backbone, first.head, first.seed, first.protocol, first.weights)

    def read(shift: str, severity: int) -> tuple[Outputs, Tensor]:
        outputs, labels = Outputs.load(cell / "outputs" / file_name(shift, severity))
        assert labels is not None
        few = torch.arange(min(most, outputs.N))  # copies, where a slice would keep the whole file in memory
        return outputs.rows(few), labels[few]

    clean, labels = read("clean", 0)
    shifted = []
    for name, kind, severity in dict.fromkeys((row.shift, row.kind, row.severity) for row in rows):
        if name != "clean" and (cell / "outputs" / file_name(name, severity)).exists():
            images = cell.parents[1] / "shifted" / first.data / file_name(name, severity)
            made = Shift(name, cast(Kind, kind), severity, partial(load, str(images.resolve()), "all"))
            shifted.append((made, *read(name, severity)))
    calibrators = {path.name: load_calibrator(path) for path in sorted((cell / "calibrators").glob("*"))}
    return Evidence(source, clean, labels, calibrators, shifted)
