"""Rows and their values on bootstrap resamples of the images, which belong together: in memory and in files."""

import hashlib
import string
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftprism._errors import choice, wrong
from shiftprism._files import read_tensors, write_tensors, write_text
from shiftprism.rows._names import is_own_score
from shiftprism.rows._row import Row, format_brief_rows, format_rows, is_brief, read_brief_rows, write_rows

RESAMPLES = 200
ROWS_FILE = "rows.jsonl"
_RESAMPLES_FILE = "resamples.safetensors"
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
        """Rows alone: value + error · z, z normal.

        The rows of one model, subject and metric share their z, over seeds and shifted sets: a mean of them is then no
        more certain than one of them. Other rows have a z of their own, so differences between two scores, two models,
        or clean and shifted images have wide intervals. (A difference between two shifted sets has a narrow one.)
        """
        groups = [(r.data, r.protocol, r.model, r.subject, r.metric, r.shift == "clean") for r in rows]
        places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        z = np.random.default_rng(0).standard_normal((len(places), RESAMPLES))[[places[group] for group in groups]]
        z = z.reshape(len(rows), RESAMPLES)
        values, errors = (np.array([getattr(row, name) for row in rows], np.float64) for name in ("value", "error"))
        return Results(list(rows), (values[:, None] + errors[:, None] * z).astype(np.float32))

    @staticmethod
    def read(path: str | Path) -> "Results":
        """From a folder with rows.jsonl and resamples.safetensors, or from a file of rows.

        Brief rows carry some of their resamples themselves. Resamples that are missing are drawn as `without_resamples`
        says, and so are those that belong to other rows, with a warning. A damaged file of resamples is an error.
        """
        path = Path(path)
        file = path / ROWS_FILE if path.is_dir() else path
        if not file.is_file():
            raise wrong("RESULTS", f"a folder with {ROWS_FILE}", path, "run `shiftprism benchmark` first")
        rows, texts = read_brief_rows(file)
        stored = _read_resamples(file)
        if stored is not None:
            return Results(rows, stored)
        if (beside := file.with_name(_RESAMPLES_FILE)).exists():
            text = f"{beside} does not belong to its rows: intervals of differences are wider than they need be"
            warnings.warn(text, stacklevel=2)
        results = Results.without_resamples(rows)
        for number, text in enumerate(texts):
            if text:
                results.resamples[number] = _decode_resamples(rows[number], text)
        return results

    def write(self, folder: str | Path) -> None:
        """Write rows.jsonl and resamples.safetensors, each whole or not at all, the rows last."""
        folder = Path(folder)
        about = {"format": _FORMAT, "rows": _digest(format_rows(self.rows).encode())}
        about["resamples"] = _digest(np.ascontiguousarray(self.resamples).tobytes())
        write_tensors(folder / _RESAMPLES_FILE, {"resamples": self.resamples}, about)
        write_rows(folder / ROWS_FILE, self.rows)

    def write_brief(self, folder: str | Path) -> None:
        """Write rows.jsonl alone, in brief lines, small enough to be published.

        Resamples are kept for the rows that tables and claims compare (`_is_compared`), one letter each, to an eighth
        of the error. The others are drawn again when the file is read, as `without_resamples` says.
        """
        file = Path(folder) / ROWS_FILE
        places = {name: place for place, name in enumerate(dict.fromkeys((r.subject, r.metric) for r in self.rows))}

        def sort_key(number: int) -> tuple[str, str, str, int, int]:
            row = self.rows[number]
            return row.data, row.protocol, row.model, row.seed, places[row.subject, row.metric]

        order = sorted(range(len(self.rows)), key=sort_key)  # a line is short where few fields change
        rows = [self.rows[number] for number in order]
        texts = [
            _encode_resamples(self.rows[n], self.resamples[n]) if _is_compared(self.rows[n]) else "" for n in order
        ]
        write_text(file, format_brief_rows(rows, texts))
        file.with_name(_RESAMPLES_FILE).unlink(missing_ok=True)

    def where(self, **conditions: object) -> "Results":
        """The rows whose fields have these values; a tuple, list or set stands for any of its members."""
        for name in conditions:
            choice("conditions", name, Row.__dataclass_fields__)
        allowed = {name: v if isinstance(v, tuple | list | set) else (v,) for name, v in conditions.items()}
        return self.take(
            number
            for number, row in enumerate(self.rows)
            if all(getattr(row, name) in values for name, values in allowed.items())
        )

    def take(self, numbers: Iterable[int]) -> "Results":
        """The rows with these numbers, in this order."""
        numbers = list(numbers)
        return Results([self.rows[number] for number in numbers], self.resamples[numbers])

    @staticmethod
    def concat(parts: "Iterable[Results]") -> "Results":
        """The rows of all parts, in order."""
        parts = list(parts)
        rows = [row for part in parts for row in part.rows]
        empty = np.empty((0, RESAMPLES), np.float32)
        return Results(rows, np.concatenate([empty, *(part.resamples for part in parts)]))


def find_fault(folder: Path) -> str:
    """What is wrong with the results stored in a folder: "" if nothing is, "absent" if there are none."""
    file = folder / ROWS_FILE
    if not file.exists():
        return "absent"
    try:
        read_brief_rows(file)
        whole = is_brief(file) or _read_resamples(file) is not None  # brief rows carry their resamples
    except ValueError as error:
        return str(error)
    return "" if whole else f"{folder / _RESAMPLES_FILE} does not belong to its rows."


def _read_resamples(file: Path) -> NDArray[np.float32] | None:
    """The resamples beside a file of rows, if they belong to these very rows; damaged ones are an error."""
    path, advice = file.with_name(_RESAMPLES_FILE), "repeat the benchmark's command, or remove this file"
    if not path.exists():
        return None
    tensors, about = read_tensors(path, _FORMAT, advice, framework="np")
    lines = file.read_bytes()
    resamples: NDArray[np.float32] | None = tensors.get("resamples")
    if about.get("rows") != _digest(lines):
        return None
    shape = (lines.count(b"\n"), RESAMPLES)
    if resamples is None or resamples.shape != shape or resamples.dtype != np.float32:
        raise wrong("path", f"resamples of shape {shape}", f"{path} with others", advice)
    if about.get("resamples") not in (None, _digest(resamples.tobytes())):  # older files have no digest
        raise wrong("path", "the resamples that were written", f"{path}, which has changed", advice)
    return resamples


def _is_compared(row: Row) -> bool:
    """Whether tables or claims compare this row with others, so that its resamples must stay paired with theirs."""
    if not row.error:
        return False
    if row.metric == "auroc":
        return row.severity == 0 or row.subject in ("g", "h", "u") or is_own_score(row.subject)
    return row.severity == 0 and row.metric in ("accuracy", "ece", "nll")


def _encode_resamples(row: Row, resamples: NDArray[np.float32]) -> str:
    """A letter a resample: its distance from their mean in eighths of the row's error, from −32 to 31."""
    steps = np.round(8 * (resamples.astype(np.float64) - resamples.mean(dtype=np.float64)) / row.error)
    return "".join(_LETTERS[int(step)] for step in np.clip(steps, -32, 31) + 32)


def _decode_resamples(row: Row, text: str) -> NDArray[np.float32]:
    """The resamples that `_encode_resamples` wrote, around the row's value."""
    if len(text) != RESAMPLES or set(text) - set(_LETTERS):
        got = f"{row.model} {row.shift} {row.subject} {row.metric} with z = {text[:12]}…"
        raise wrong("path", f"brief rows with {RESAMPLES} letters as z", got, "take the file as it was published")
    steps = np.array([_LETTERS.index(letter) - 32 for letter in text])
    return (row.value + row.error * steps / 8).astype(np.float32)


_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def _digest(lines: bytes) -> str:
    return hashlib.sha256(lines).hexdigest()
