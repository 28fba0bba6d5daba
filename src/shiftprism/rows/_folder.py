"""The layout of a folder of results: the one place that knows which file is where."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftprism._files import read_json, write_json, write_text
from shiftprism.rows._names import file_stem
from shiftprism.rows._results import ROWS_FILE, Results, find_fault

_REMOVE = "remove it and repeat the benchmark's command"


@dataclass(frozen=True)
class CellFolder:
    """The files of one model of one seed on one data set."""

    path: Path

    @property
    def rows(self) -> Path:
        """The rows, written when the cell is finished."""
        return self.path / ROWS_FILE

    @property
    def run(self) -> Path:
        """The training run."""
        return self.path / "run"

    @property
    def error(self) -> Path:
        """The traceback of a cell that failed."""
        return self.path / "error.txt"

    @property
    def pixels(self) -> Path:
        """The pixel counts of every set, where the cell is about pixels."""
        return self.path / "pixels.json"

    def outputs(self, shift: str, severity: int | None = None) -> Path:
        """The Outputs of one set: a shifted one, or "clean", "train" or "held-out"."""
        return self.path / "outputs" / set_file(shift, severity)

    def calibrators(self) -> list[Path]:
        """The folders of the fitted calibrators."""
        return sorted((self.path / "calibrators").glob("*"))

    def calibrator(self, name: str) -> Path:
        """The folder of one calibrator."""
        return self.path / "calibrators" / name

    def find_fault(self) -> str:
        """What is wrong with the cell's rows: "" if nothing is, "absent" if there are none."""
        return find_fault(self.path)

    def read_about(self) -> dict[str, dict[str, Any]]:
        """The scores and calibrators that do not fit this model, with the reason, and the seconds of each part."""
        file = self.path / "cell.json"
        stored = read_json(file, "a file of this benchmark", _REMOVE) if file.exists() else {}
        return {"left_out": {}, "seconds": {}} | stored

    def write_about(self, left_out: dict[str, str], seconds: dict[str, float]) -> None:
        """Write what `read_about` reads."""
        write_json(self.path / "cell.json", {"left_out": left_out, "seconds": seconds})


@dataclass(frozen=True)
class ResultsFolder:
    """The files of a benchmark: plan, images, one folder a cell, and what is published from their rows."""

    path: Path

    @staticmethod
    def of(path: str | Path) -> "ResultsFolder":
        """The folder, or the folder of a file of rows."""
        path = Path(path)
        return ResultsFolder(path.parent if path.is_file() else path)

    @property
    def suite(self) -> Path:
        """The plan and the commands that filled the folder."""
        return self.path / "suite.json"

    @property
    def claims(self) -> Path:
        """The judged claims."""
        return self.path / "claims.json"

    @property
    def page(self) -> Path:
        """The page for readers."""
        return self.path / "report.html"

    @property
    def tables(self) -> Path:
        """A file for each table and format."""
        return self.path / "tables"

    def figure(self, stem: str) -> Path:
        """A published figure."""
        return self.path / "figures" / f"{stem}.svg"

    def data(self, name: str) -> Path:
        """The classes that models learn, where others are held out."""
        return self.path / "data" / f"{file_stem(name)}.safetensors"

    def shifted(self, data: str) -> Path:
        """The shifted sets of an ID data set."""
        return self.path / "shifted" / data

    def cell(self, key: str) -> CellFolder:
        """The files of one cell."""
        return CellFolder(self.path / "cells" / key)

    def cells(self) -> list[CellFolder]:
        """The cells that are there, in the order of their names."""
        return [CellFolder(path) for path in sorted((self.path / "cells").glob("*")) if path.is_dir()]

    def read_suite(self) -> dict[str, Any]:
        """The plan, the last command and the earlier ones; an empty object where there is no file."""
        return read_json(self.suite, "a file of this benchmark", _REMOVE) if self.suite.exists() else {}

    def commands(self) -> list[str]:
        """The commands that filled the folder, in order."""
        suite = self.read_suite()
        return [*suite.get("earlier", []), *([suite["command"]] if suite.get("command") else [])]

    def write_suite(self, plan: dict[str, Any], command: str) -> None:
        """Record the plan and the command, after the commands that are there."""
        earlier = [text for text in self.commands() if text != command]
        write_json(self.suite, {"plan": plan, "command": command, "earlier": list(dict.fromkeys(earlier))})

    def write_pixels(self) -> None:
        """Join the pixel counts of every cell: {ID data set: {set: (C, 256)}}."""
        counts = {}
        for cell in self.cells():
            if cell.pixels.exists():
                own = read_json(cell.pixels, "a file of pixel counts", _REMOVE)
                counts[next(iter(own))] = own
        write_text(self.path / "pixels.json", json.dumps(counts))

    def read_pixels(self, data: str) -> dict[str, Any]:
        """The pixel counts of every set beside an ID data set."""
        file = self.path / "pixels.json"
        if not file.exists():
            raise FileNotFoundError(f"{file} is not there: no pixels were counted")
        counts = read_json(file, "a file of pixel counts", _REMOVE)
        if data not in counts:  # data without other images beside them
            raise FileNotFoundError(f"{file} has nothing of {data}: no pixels were counted")
        return dict(counts[data])

    def collect(self, known: dict[str, Results] | None = None) -> Results:
        """The rows of all whole cells, in the order of their names; those in `known` (by key) are not read again."""
        known = known or {}
        parts = [
            known[cell.path.name] if cell.path.name in known else Results.read(cell.path)
            for cell in self.cells()
            if cell.path.name in known or not cell.find_fault()
        ]
        return Results.concat(parts)


def set_file(shift: str, severity: int | None = None) -> str:
    """The name of a file about one set.

    >>> set_file("motion_blur", 3), set_file("train")
    ('motion_blur-3.safetensors', 'train.safetensors')
    """
    return f"{file_stem(shift)}{'' if severity is None else f'-{severity}'}.safetensors"
