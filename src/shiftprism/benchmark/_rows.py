"""Models x shifts x scores and calibrators -> rows: what was measured, on what, with which weights and versions."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shiftprism import metrics
from shiftprism._checks import choice, wrong
from shiftprism._files import write_text
from shiftprism.calibrators import CALIBRATORS, Calibrator
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import Dataset
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES
from shiftprism.shifts import Kind, Shift

READY = tuple(name for name, entry in SCORES.items() if entry.ready)
"""The scores that need no fit."""


@dataclass(frozen=True)
class Row:
    """One number and everything needed to trace it."""

    model: str
    """What is compared: a head's name, or any name a user gives."""
    seed: int
    shift: str
    kind: str
    severity: int
    """0 stands for all severities pooled, or no scale."""
    subject: str
    """The score or calibrator; "none" is the uncalibrated model."""
    metric: str
    value: float
    n: int
    """How many shifted images (clean ones where there is no shift)."""
    weights: str
    """The first 12 digits of the weights' fingerprint."""
    versions: str
    commit: str


class Evidence(NamedTuple):
    """What one trained model says about every set: each image was forwarded once."""

    model: str
    seed: int
    weights: str
    clean: Outputs
    labels: Tensor
    calibrators: Mapping[str, Calibrator]
    shifted: Sequence[tuple[Shift, Outputs, Tensor]]


class Summary(NamedTuple):
    """Mean and standard deviation over seeds (0 for a single one)."""

    mean: float
    std: float
    seeds: int

    @staticmethod
    def of(values: Collection[float]) -> "Summary":
        """The summary of one value a seed."""
        return Summary(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def gather(
    model: str,
    seed: int,
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
    return Evidence(model, seed, classifier.fingerprint()[:12], clean, test.labels, fitted, shifted)


def detection_rows(evidence: Evidence, scores: Sequence[str] = READY) -> list[Row]:
    """AUROC and TNR@TPR95 (ID positive) of each score on each shift, and on all severities of a shift pooled."""
    rows = []
    for score in scores:
        inside = SCORES[score](evidence.clean)
        pooled: dict[tuple[str, Kind], list[Tensor]] = defaultdict(list)
        for shift, outputs, _ in evidence.shifted:
            outside = SCORES[score](outputs)
            if shift.severity:
                pooled[shift.name, shift.kind].append(outside)
            rows += _detected(evidence, (shift.name, shift.kind, shift.severity), score, inside, outside)
        for (name, kind), parts in pooled.items():
            rows += _detected(evidence, (name, kind, 0), score, inside, torch.cat(parts))
    return rows


def calibration_rows(evidence: Evidence) -> list[Row]:
    """Accuracy, ECE and NLL before and after each calibrator, on clean data and where a shift keeps the labels."""
    sets: list[tuple[tuple[str, Kind, int], Outputs, Tensor]] = [
        (("clean", "none", 0), evidence.clean, evidence.labels)
    ]
    sets += [
        ((shift.name, shift.kind, shift.severity), outputs, labels)
        for shift, outputs, labels in evidence.shifted
        if shift.kind == "covariate"
    ]
    rows = []
    for where, outputs, labels in sets:
        logits = {"none": outputs.logits} | {name: fitted(outputs) for name, fitted in evidence.calibrators.items()}
        for subject, values in logits.items():
            probabilities = torch.softmax(values.double(), 1)
            for metric, measure in _CALIBRATION.items():
                value = measure(probabilities, labels)
                rows.append(_row(evidence, where, subject, metric, value, len(labels)))
    return rows


def summarise(rows: Iterable[Row]) -> dict[tuple[str, str, int, str, str], Summary]:
    """Rows by (model, shift, severity, subject, metric), over seeds."""
    groups: dict[tuple[str, str, int, str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        groups[row.model, row.shift, row.severity, row.subject, row.metric][row.seed] = row.value
    return {key: Summary.of(found.values()) for key, found in groups.items()}


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """JSON lines, whole or not at all."""
    write_text(Path(path), "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file, each line checked against the schema."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(_parsed(json.loads(line)))
        except (ValueError, TypeError) as error:
            got = f"line {number} of {path} ({error})"
            raise wrong("path", "a file of benchmark rows", got, "remove or repair this line") from error
    return rows


_CALIBRATION: dict[str, Callable[[Tensor, Tensor], float]] = {
    "accuracy": metrics.accuracy,
    "ece": metrics.ece,
    "nll": metrics.nll,
}


def _parsed(found: Any) -> Row:
    """A row from what a line holds; a name that is missing or unknown, or a value of another type, is an error."""
    row = Row(**found)
    for field in fields(Row):
        value, types = getattr(row, field.name), {"str": str, "int": int, "float": int | float}
        if not isinstance(value, types[str(getattr(field.type, "__name__", field.type))]):
            raise TypeError(f"{field.name} is {value!r}")
    return row


def _detected(
    evidence: Evidence, where: tuple[str, str, int], score: str, inside: Tensor, outside: Tensor
) -> list[Row]:
    return [
        _row(evidence, where, score, "auroc", metrics.auroc(inside, outside), len(outside)),
        _row(evidence, where, score, "tnr_at_tpr95", metrics.tnr_at_tpr(inside, outside), len(outside)),
    ]


def _row(evidence: Evidence, where: tuple[str, str, int], subject: str, metric: str, value: float, n: int) -> Row:
    return Row(evidence.model, evidence.seed, *where, subject, metric, value, n, evidence.weights, versions(), commit())


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
