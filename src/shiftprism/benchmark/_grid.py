"""The cells of a plan: one for each model, seed and data set."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from shiftprism._errors import wrong
from shiftprism.benchmark._plan import MODELS, ModelSpec, Plan, parse_run
from shiftprism.rows import CellFolder, ResultsFolder, file_stem
from shiftprism.training import read_run_settings

MIRRORED = "-mirrored"
"""What the name of a model ends with whose images are averaged with their mirror images."""


class Cell(NamedTuple):
    """One model of one seed on one data set: what is trained, forwarded and measured by itself."""

    plan: Plan
    out: str
    data: str
    model: str
    seed: int
    run: str = ""
    """The folder of a given run; empty for one that is trained here."""
    mirrored: bool = False
    """Whether each image is averaged with its mirror image. The model is that of the cell `unmirrored`."""

    @property
    def key(self) -> str:
        """The name of its folder."""
        return file_stem(Path(self.data).name, self.model, str(self.seed))

    @property
    def unmirrored(self) -> "Cell":
        """The cell of the same model on the images alone."""
        return self._replace(model=self.model.removesuffix(MIRRORED), mirrored=False)

    @property
    def derived(self) -> bool:
        """Whether it needs the models of other cells."""
        return self.mirrored or self.is_ensemble

    @property
    def is_ensemble(self) -> bool:
        """Whether it is the mean of other cells; a given run is a network, whatever its name."""
        return not self.run and bool(MODELS.get(self.model, ModelSpec("")).members)

    def list_members(self) -> "list[Cell]":
        """The cells that an ensemble is the mean of."""
        members = MODELS[self.model].members
        cells = list_cells(self.plan, Path(self.out))
        return [cell for cell in cells if cell.model == members and cell.data == self.data]

    @property
    def results(self) -> ResultsFolder:
        """The folder of the whole benchmark."""
        return ResultsFolder(Path(self.out))

    @property
    def folder(self) -> CellFolder:
        """The files of this cell."""
        return self.results.cell(self.key)


def list_cells(plan: Plan, out: Path) -> list[Cell]:
    """All cells; ensembles and mirrored models last, because they need the others."""
    cells = []
    for data in plan.data_sets:
        # without other images there are no pixels to compare, and photographs have many sizes
        if plan.suite != "photos" and (plan.far or plan.hold_out != ("none",)):
            cells.append(Cell(plan, str(out), data, "pixels", 0))
        for name, count in plan.seeds_by_model.items():
            cells += [Cell(plan, str(out), data, name, seed) for seed in range(count)]
        numbers = Counter[str]()
        for name, folder in map(parse_run, plan.runs):
            seed = read_run_settings(Path(folder)).get("seed", numbers[name])
            numbers[name] += 1
            cells.append(Cell(plan, str(out), data, name, seed, folder))
    if plan.mirror:
        alone = [cell for cell in cells if cell.model != "pixels" and not cell.is_ensemble]
        cells += [cell._replace(model=cell.model + MIRRORED, mirrored=True) for cell in alone]
    keys = Counter(cell.key for cell in cells)
    if twice := [key for key, count in keys.items() if count > 1]:
        raise wrong("runs", "different models or seeds", f"{', '.join(twice)} twice", "give each its name: name=FOLDER")
    return sorted(cells, key=lambda cell: cell.derived)
