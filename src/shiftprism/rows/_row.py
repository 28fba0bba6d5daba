"""Rows: one measured number each, with everything needed to trace it; as JSON lines in a file."""

import json
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, get_args

from shiftprism._errors import choice, wrong
from shiftprism._files import check_file, write_text

Kind = Literal["none", "covariate", "concept", "both"]
"""What has shifted: nothing, the style of the images, their classes, or both."""


class Source(NamedTuple):
    """The model that a number is about: the first fields of a Row, and the fingerprint of the weights."""

    model: str
    data: str
    backbone: str
    head: str
    seed: int
    protocol: str
    weights: str


class Condition(NamedTuple):
    """The set of images that a number is about, as in a Row."""

    shift: str
    kind: Kind
    severity: int


@dataclass(frozen=True)
class Row:
    """One number and everything needed to trace it."""

    model: str
    """What is compared: vanilla, alpha-beta, odin, ensemble, …, or any name a user gives."""
    data: str
    """The in-distribution data set."""
    backbone: str
    head: str
    seed: int
    protocol: str
    """Where calibrators were fitted: on "held-out" training images, or on the test set as in the "paper"."""
    shift: str
    """A data set, a corruption, "clean", "concept-splits", or "corrupted": all corruptions together."""
    kind: str
    severity: int
    """0 stands for all severities together, or for a shift without severities."""
    subject: str
    """The score or calibrator ("none" is the uncalibrated model), or alpha, beta, norm, training, histogram."""
    metric: str
    value: float
    error: float
    """The standard deviation of the value over bootstrap resamples of the images; 0 where it has none."""
    n: int
    """The number of shifted images (of clean images where there is no shift)."""
    weights: str
    """The first 12 digits of the weights' fingerprint."""
    versions: str
    commit: str

    @property
    def source(self) -> Source:
        """The model this row is about."""
        return Source(**{name: getattr(self, name) for name in Source._fields})

    @property
    def condition(self) -> Condition:
        """The set of images this row is about."""
        return Condition(**{name: getattr(self, name) for name in Condition._fields})


def make_row(
    source: Source, condition: Condition, *, subject: str, metric: str, value: float, error: float, n: int
) -> Row:
    """A row measured by this version of the package."""
    return Row(
        **source._asdict(),
        **condition._asdict(),
        subject=subject,
        metric=metric,
        value=value,
        error=error,
        n=n,
        versions=_versions(),
        commit=_commit(),
    )


class Summary(NamedTuple):
    """Mean and standard deviation over seeds (0 for a single seed)."""

    mean: float
    std: float
    seeds: int

    @staticmethod
    def of(values: Collection[float]) -> "Summary":
        """The summary of one value a seed."""
        return Summary(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Write the rows as JSON lines, whole or not at all."""
    write_text(Path(path), format_rows(rows))


def format_rows(rows: Iterable[Row]) -> str:
    """The rows as JSON lines."""
    return "".join(json.dumps(vars(row)) + "\n" for row in rows)


def format_brief_rows(rows: Iterable[Row], resamples: Iterable[str]) -> str:
    """The rows as a published file has them: a fifth of the size, resamples included.

    The first line names the format. Every other line has only the fields that differ from the line before, and numbers
    have six digits. `resamples` is a text for each row that is kept beside it as "z"; an empty one is left out. Rows
    without one that follow each other and differ in severity, value and error alone share a line, with a list of each.
    """
    lines, before = list[dict[str, Any]](), dict[str, Any]()
    for row, text in zip(rows, resamples, strict=True):
        now = vars(row) | {"value": float(f"{row.value:.6g}")}
        changed = {name: value for name, value in now.items() if name not in before or before[name] != value}
        if not text and lines and "z" not in lines[-1] and changed.keys() <= set(_LISTED):
            for name in _LISTED:
                own = lines[-1].setdefault(name, before[name])
                lines[-1][name] = [*(own if isinstance(own, list) else [own]), now[name]]
        else:
            lines.append(changed | ({"z": text} if text else {}))
        before = now
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (_BRIEF, *lines))


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file, in full or brief lines, each checked against the schema."""
    return read_brief_rows(path)[0]


def read_brief_rows(path: str | Path) -> tuple[list[Row], list[str]]:
    """The rows of a file, and the "z" of each: empty where there is none."""
    rows: list[Row] = []
    resamples: list[str] = []
    listed: tuple[str, ...] | None = None  # the fields that may be lists; None in a file of full rows
    before = dict[str, Any]()
    try:
        lines = check_file(Path(path)).read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        got = f"{path} ({error})"
        raise wrong("path", "a text file of benchmark rows", got, "take a whole copy of it") from error
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            if number == 1 and (listed := _BRIEF_FORMATS.get(values.get("format"))) is not None:
                continue
            text = "" if listed is None else str(values.pop("z", ""))
            for one in _unfold(values, listed or ()):
                before = one if listed is None else before | one
                rows.append(_parse_row(before))
                resamples.append(text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            got = f"line {number} of {path} ({error})"
            raise wrong("path", "a file of benchmark rows", got, "remove or repair this line") from error
    return rows, resamples


def is_brief(path: Path) -> bool:
    """Whether the rows of a file are in brief lines."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    return any(f'"{name}"' in first for name in _BRIEF_FORMATS)


def _unfold(values: dict[str, Any], listed: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of a line: several where the `listed` fields are lists, which must be of one length."""
    if not any(isinstance(values.get(name), list) for name in listed):
        return [values]
    columns = [values[name] for name in listed]
    return [values | dict(zip(listed, numbers, strict=True)) for numbers in zip(*columns, strict=True)]


def _parse_row(values: Any) -> Row:
    """A row from the object of a line; a missing or unknown field, or a value of another type, is an error."""
    row = Row(**values)
    for name, types in _TYPES.items():
        if type(values[name]) not in types:
            raise TypeError(f"{name} is {values[name]!r}")
        # JSON's reader takes NaN and 1e999 for numbers, and whole numbers of any length
        if str not in types and not abs(values[name]) < _LIMIT:
            raise ValueError(f"{name} is {values[name]!r:.40}, not a finite number")
    for name in ("model", "shift", "subject", "metric"):
        if not values[name]:
            raise ValueError(f"{name} is empty")
    choice("kind", row.kind, get_args(Kind))
    choice("protocol", row.protocol, ("held-out", "paper", ""))
    return row


_LISTED = ("severity", "value", "error")
_BRIEF = {"format": "shiftprism-brief-rows-2"}
_BRIEF_FORMATS: dict[str, tuple[str, ...]] = {"shiftprism-brief-rows-1": (), "shiftprism-brief-rows-2": _LISTED}
_LIMIT = 2.0**63
_JSON_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int)}
_TYPES = {field.name: _JSON_TYPES[str(getattr(field.type, "__name__", field.type))] for field in fields(Row)}


@cache
def _versions() -> str:
    """The packages that the numbers depend on, beside weights and source."""
    return ", ".join(f"{name} {version(name)}" for name in ("shiftprism", "torch", "numpy", "scipy"))


@cache
def _commit() -> str:
    """The commit of the source this package runs from; empty for an installed copy."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""
