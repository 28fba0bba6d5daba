"""Rows and their values on bootstrap resamples of the images, which belong together: in memory and in a folder."""

import hashlib
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from shiftprism._checks import choice, wrong
from shiftprism._files import write_tensors, write_text
from shiftprism.benchmark._rows import Row, as_brief_lines, as_lines, read_lines, write_rows

RESAMPLES = 200
_FORMAT = "shiftprism-resamples-1"


class Results(NamedTuple):
    """Rows, and for each the value it takes on B = 200 bootstrap resamples of the images.

    Resample b draws the same images for every subject, metric, model and seed, so differences over column b are paired:
    between scores, between models, and between the corruptions of a data set, which share their images.

    >>> row = Row("vanilla", "d", "b", "h", 0, "paper", "svhn", "both", 0, "g", "auroc", 0.9, 0.01, 100, "", "", "")
    >>> results = Results.without_resamples([row])
    >>> results.where(subject=("g", "h"), metric="auroc").resamples.shape
    (1, 200)
    """

    rows: list[Row]
    resamples: NDArray[np.float32]
    """(len(rows), B)."""

    @staticmethod
    def without_resamples(rows: Sequence[Row]) -> "Results":
        """Rows alone: value + error · z, z normal and independent for each row.

        What is paired is then taken for independent, so intervals of differences are too wide rather than too narrow.
        """
        z = np.random.default_rng(0).standard_normal((len(rows), RESAMPLES))
        values, errors = (np.array([getattr(row, name) for row in rows], np.float64) for name in ("value", "error"))
        return Results(list(rows), (values[:, None] + errors[:, None] * z).astype(np.float32))

    @staticmethod
    def read(path: str | Path) -> "Results":
        """From a folder with rows.jsonl and resamples.safetensors, or from a file of rows.

        Brief rows carry some of their resamples themselves. Those missing, or of other rows, are drawn as
        `without_resamples` says.
        """
        path = Path(path)
        file = path / "rows.jsonl" if path.is_dir() else path
        rows, brief = read_lines(file)
        found = stored_resamples(file)
        if found is not None:
            return Results(rows, found)
        drawn = Results.without_resamples(rows)
        for number, text in enumerate(brief):
            if text:
                drawn.resamples[number] = _told(rows[number], text)
        return drawn

    def write(self, folder: str | Path) -> None:
        """rows.jsonl and resamples.safetensors, each whole or not at all, the rows last."""
        folder = Path(folder)
        about = {"format": _FORMAT, "rows": _digest(as_lines(self.rows).encode())}
        tensors = {"resamples": torch.from_numpy(np.ascontiguousarray(self.resamples))}
        write_tensors(folder / "resamples.safetensors", tensors, about)
        write_rows(folder / "rows.jsonl", self.rows)

    def write_brief(self, folder: str | Path) -> None:
        """rows.jsonl alone, in brief lines: what is small enough to be published.

        Resamples are kept where tables and claims compare by them (`_compared`), to an eighth of the error: one letter
        each. The others are drawn anew when the file is read, as `without_resamples` says.
        """
        file = Path(folder) / "rows.jsonl"
        places = {name: place for place, name in enumerate(dict.fromkeys((r.subject, r.metric) for r in self.rows))}

        def place(number: int) -> tuple[str, str, str, int, int]:
            row = self.rows[number]
            return row.data, row.protocol, row.model, row.seed, places[row.subject, row.metric]

        order = sorted(range(len(self.rows)), key=place)  # the fewer fields change, the shorter
        rows = [self.rows[number] for number in order]
        told = (_letters(self.rows[n], self.resamples[n]) if _compared(self.rows[n]) else "" for n in order)
        write_text(file, as_brief_lines(rows, told))
        file.with_name("resamples.safetensors").unlink(missing_ok=True)

    def where(self, **conditions: object) -> "Results":
        """The rows whose fields have these values; a tuple, list or set stands for any of its members."""
        for name in conditions:
            choice("conditions", name, Row.__dataclass_fields__)
        wanted = {name: v if isinstance(v, tuple | list | set) else (v,) for name, v in conditions.items()}
        kept = [
            number
            for number, row in enumerate(self.rows)
            if all(getattr(row, name) in values for name, values in wanted.items())
        ]
        return Results([self.rows[number] for number in kept], self.resamples[kept])

    @staticmethod
    def concat(parts: "Iterable[Results]") -> "Results":
        """The rows of all parts, in order."""
        parts = list(parts)
        rows = [row for part in parts for row in part.rows]
        empty = np.empty((0, RESAMPLES), np.float32)
        return Results(rows, np.concatenate([empty, *(part.resamples for part in parts)]))


def stored_resamples(file: Path) -> NDArray[np.float32] | None:
    """The resamples beside a file of rows, if they are whole and belong to these very rows."""
    try:
        with safe_open(file.with_name("resamples.safetensors"), framework="pt") as stored:
            about, lines = stored.metadata() or {}, file.read_bytes()
            if about.get("format") != _FORMAT or about.get("rows") != _digest(lines):
                return None
            found: NDArray[np.float32] = stored.get_tensor("resamples").numpy()
    except (SafetensorError, OSError):
        return None
    return found if found.shape == (lines.count(b"\n"), RESAMPLES) else None


def _compared(row: Row) -> bool:
    """Is the row one whose differences from others are judged, so that its resamples must stay paired with theirs?"""
    if not row.error:
        return False
    if row.metric == "auroc":
        return row.severity == 0 or row.subject in ("g", "h", "u")
    return row.severity == 0 and row.metric in ("accuracy", "ece", "nll")


def _letters(row: Row, resamples: NDArray[np.float32]) -> str:
    """A letter a resample: how many eighths of the row's error it is from their mean, from −32 to 31."""
    steps = np.round(8 * (resamples.astype(np.float64) - resamples.mean(dtype=np.float64)) / row.error)
    return "".join(_LETTERS[int(step)] for step in np.clip(steps, -32, 31) + 32)


def _told(row: Row, text: str) -> NDArray[np.float32]:
    """The resamples of `_letters`, around the row's value."""
    if len(text) != RESAMPLES or set(text) - set(_LETTERS):
        got = f"{row.model} {row.shift} {row.subject} {row.metric} with z = {text[:12]}…"
        raise wrong("path", f"brief rows with {RESAMPLES} letters as z", got, "take the file as it was published")
    steps = np.array([_LETTERS.index(letter) - 32 for letter in text])
    return (row.value + row.error * steps / 8).astype(np.float32)


_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def _digest(lines: bytes) -> str:
    return hashlib.sha256(lines).hexdigest()
