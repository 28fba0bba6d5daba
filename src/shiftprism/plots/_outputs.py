"""The Outputs of one model on every set, read from a folder of results: figures of single images need them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism.calibrators import Calibrator
from shiftprism.calibrators import load as load_calibrator
from shiftprism.outputs import Outputs
from shiftprism.rows import CellFolder, Condition, ResultsFolder, Source, read_rows


class ModelOutputs(NamedTuple):
    """The Outputs of one trained model on every set."""

    source: Source
    clean: Outputs
    labels: Tensor
    calibrators: Mapping[str, Calibrator]
    shifted: Sequence[tuple[Condition, Outputs, Tensor]]
    """The condition, the Outputs and the labels of each shifted set."""

    @property
    def model(self) -> str:
        """Its name in the rows."""
        return self.source.model


def read_model_outputs(
    folder: str | Path, model: str, seed: int | None = None, data: str | None = None, most: int = 1000
) -> ModelOutputs:
    """The stored Outputs of a model in a folder of results, of the first `most` images of each set.

    Without a `seed` its first is taken, without `data` its first data set. A model whose Outputs are not stored is a
    FileNotFoundError.
    """
    cells = [cell for cell in ResultsFolder(Path(folder)).cells() if cell.rows.exists()]
    for cell in cells:
        row = next(iter(read_rows(cell.rows)), None)
        stored = cell.outputs("clean", 0).exists()  # rows alone may have come from another machine
        if stored and row is not None and row.model == model and seed in (None, row.seed) and data in (None, row.data):
            return _read_cell(cell, row.source, most)
    there = ", ".join(cell.path.name for cell in cells) or "none"
    wanted = f"{model}, seed {'any' if seed is None else seed}, data {data or 'any'}"
    raise FileNotFoundError(f"{folder} has no outputs of {wanted}; it has {there}")


def _read_cell(cell: CellFolder, source: Source, most: int) -> ModelOutputs:
    def read(shift: str, severity: int) -> tuple[Outputs, Tensor]:
        outputs, labels = Outputs.load(cell.outputs(shift, severity))
        assert labels is not None
        first = torch.arange(min(most, outputs.N))  # copies, where a slice would keep the whole file in memory
        return outputs.rows(first).to(torch.float32), labels[first].long()

    clean, labels = read("clean", 0)
    shifted = [
        (condition, *read(condition.shift, condition.severity))
        for condition in dict.fromkeys(row.condition for row in read_rows(cell.rows))
        if condition.shift != "clean" and cell.outputs(condition.shift, condition.severity).exists()
    ]
    calibrators = {path.name: load_calibrator(path) for path in cell.calibrators()}
    return ModelOutputs(source, clean, labels, calibrators, shifted)
