"""The cells of a plan: one for each model, seed and data set."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from shiftprism._errors import wrong
from shiftprism.benchmark._plan import Plan, parse_run
from shiftprism.rows import CellFolder, ResultsFolder, file_stem
from shiftprism.training import read_run_settings


class Cell(NamedTuple):
    """One model of one seed on one data set: what is trained, forwarded and measured by itself."""

    plan: Plan
    out: str
    data: str
    model: str
    seed: int
    run: str = ""
    """The folder of a given run; empty for one that is trained here."""

    @property
    def key(self) -> str:
        """The name of its folder."""
        return file_stem(Path(self.data).name, self.model, str(self.seed))

    @property
    def results(self) -> ResultsFolder:
        """The folder of the whole benchmark."""
        return ResultsFolder(Path(self.out))

    @property
    def folder(self) -> CellFolder:
        """The files of this cell."""
        return self.results.cell(self.key)


def list_cells(plan: Plan, out: Path) -> list[Cell]:
    """All cells; ensembles last, because they need their members."""
    cells = []
    for data in plan.data_sets:
        cells.append(Cell(plan, str(out), data, "pixels", 0))
        for name, count in plan.seeds_by_model.items():
            cells += [Cell(plan, str(out), data, name, seed) for seed in range(count)]
        numbers = Counter[str]()
        for name, folder in map(parse_run, plan.runs):
            seed = read_run_settings(Path(folder)).get("seed", numbers[name])
            numbers[name] += 1
            cells.append(Cell(plan, str(out), data, name, seed, folder))
    keys = Counter(cell.key for cell in cells)
    if twice := [key for key, count in keys.items() if count > 1]:
        raise wrong("runs", "different models or seeds", f"{', '.join(twice)} twice", "give each its name: name=FOLDER")
    return sorted(cells, key=lambda cell: cell.model == "ensemble")
