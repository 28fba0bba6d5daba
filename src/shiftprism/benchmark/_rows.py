"""Rows: what was measured, on what, with which weights and versions; as JSON lines in a file."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, get_args

from shiftprism._checks import choice, wrong
from shiftprism._files import write_text
from shiftprism.shifts import Kind


@dataclass(frozen=True)
class Row:
    """One number and everything needed to trace it."""

    model: str
    """What is compared: vanilla, alpha-beta, odin, ensemble, …, or any name a user gives."""
    data: str
    """The ID data set."""
    backbone: str
    head: str
    seed: int
    protocol: str
    """Where calibrators were fitted: "held-out" training images, or the test set as in the "paper"."""
    shift: str
    """A data set, a corruption, "clean", "concept-splits", or "corrupted": all corruptions together."""
    kind: str
    severity: int
    """0 stands for all severities together, or no scale."""
    subject: str
    """The score or calibrator ("none" is the uncalibrated model), or alpha, beta, norm, training, histogram."""
    metric: str
    value: float
    error: float
    """The standard deviation of the value over bootstrap resamples of the images; 0 where it has none."""
    n: int
    """How many shifted images (clean ones where there is no shift)."""
    weights: str
    """The first 12 digits of the weights' fingerprint."""
    versions: str
    commit: str


class Summary(NamedTuple):
    """Mean and standard deviation over seeds (0 for a single one)."""

    mean: float
    std: float
    seeds: int

    @staticmethod
    def of(values: Collection[float]) -> "Summary":
        """The summary of one value a seed."""
        return Summary(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def summarise(rows: Iterable[Row]) -> dict[tuple[str, str, int, str, str], Summary]:
    """Rows by (model, shift, severity, subject, metric), over seeds; of one data set."""
    groups: dict[tuple[str, str, int, str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        groups[row.model, row.shift, row.severity, row.subject, row.metric][row.seed] = row.value
    return {key: Summary.of(found.values()) for key, found in groups.items()}


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """JSON lines, whole or not at all."""
    write_text(Path(path), as_lines(rows))


def as_lines(rows: Iterable[Row]) -> str:
    """The rows as a file has them."""
    return "".join(json.dumps(vars(row)) + "\n" for row in rows)


def as_brief_lines(rows: Iterable[Row], more: Iterable[str]) -> str:
    """The rows as a file for publication has them: a fraction of the size.

    After a line that names the format, each has only what differs from the line before, and numbers have six digits.
    `more` is for each row a text that is kept beside it as "z", or empty.
    """
    lines, before = [json.dumps(_BRIEF)], dict[str, Any]()
    for row, z in zip(rows, more, strict=True):
        now = vars(row) | {"value": float(f"{row.value:.6g}")}
        changed = {name: value for name, value in now.items() if name not in before or before[name] != value}
        lines.append(json.dumps(changed | ({"z": z} if z else {}), separators=(",", ":")))
        before = now
    return "\n".join(lines) + "\n"


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file, in full or brief lines, each checked against the schema."""
    return read_lines(path)[0]


def read_lines(path: str | Path) -> tuple[list[Row], list[str]]:
    """The rows of a file, and the "z" of each: empty where there is none."""
    rows: list[Row] = []
    more: list[str] = []
    brief, before = False, dict[str, Any]()
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            found = json.loads(line)
            if number == 1 and found == _BRIEF:
                brief = True
                continue
            more.append(str(found.pop("z", "")) if brief else "")
            before = before | found if brief else found
            rows.append(_parsed(before))
        except (ValueError, TypeError, AttributeError) as error:
            got = f"line {number} of {path} ({error})"
            raise wrong("path", "a file of benchmark rows", got, "remove or repair this line") from error
    return rows, more


def _parsed(found: Any) -> Row:
    """A row from what a line holds; a name that is missing or unknown, or a value of another type, is an error."""
    row = Row(**found)
    for name, types in _TYPES.items():
        if type(found[name]) not in types:
            raise TypeError(f"{name} is {found[name]!r}")
    choice("kind", row.kind, get_args(Kind))
    return row


_BRIEF = {"format": "shiftprism-brief-rows-1"}
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int)}
_TYPES = {one.name: _KINDS[str(getattr(one.type, "__name__", one.type))] for one in fields(Row)}


@cache
def versions() -> str:
    """What the numbers depend on besides weights and source."""
    return ", ".join(f"{name} {version(name)}" for name in ("shiftprism", "torch", "numpy", "scipy"))


@cache
def commit() -> str:
    """The commit of the source this package runs from; empty for an installed copy."""
    found = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else ""
