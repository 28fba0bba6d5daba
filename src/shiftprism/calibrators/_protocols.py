"""Protocols: logits from calibrators that did not see the sample, and the lines of the paper's Tables 2 and 3."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import classes, wrong
from shiftprism.calibrators._calibrator import Calibrator
from shiftprism.metrics import accuracy, ece, nll
from shiftprism.outputs import Outputs

Fit = type[Calibrator] | Callable[[Outputs, Tensor], Calibrator]
"""A calibrator's class, or a function of Outputs and labels that fits one: `partial(Matrix.fit, penalty=PAPER)`."""


def cross_validate(calibrator: Fit, outputs: Outputs, labels: ArrayLike, folds: int = 5, seed: int = 0) -> Tensor:
    """Calibrated logits (N, K): each row by a calibrator fitted to the other folds. Take metrics on all rows at once.

    >>> from shiftprism.calibrators import Temperature
    >>> outputs = Outputs.from_logits(torch.randn(30, 3))
    >>> cross_validate(Temperature, outputs, outputs.predictions).shape
    torch.Size([30, 3])
    """
    targets = torch.from_numpy(classes("labels", labels, outputs.N, outputs.K))
    if not 2 <= folds <= outputs.N:
        raise wrong("folds", f"between 2 and the {outputs.N} samples", folds, "5 is usual")
    order = torch.randperm(outputs.N, generator=torch.Generator().manual_seed(seed))
    result = torch.empty_like(outputs.logits)
    for number in range(folds):
        held_out = order[number::folds]
        rest = torch.ones(outputs.N, dtype=torch.bool)
        rest[held_out] = False
        fitted = _fit(calibrator, outputs.rows(rest), targets[rest])
        result[held_out] = fitted(outputs.rows(held_out)).to(result.dtype)
    return result


class Line(NamedTuple):
    """One method's line in a calibration table; the shifted numbers are means over the conditions."""

    method: str
    accuracy: float
    accuracy_shifted: float
    ece: float
    ece_shifted: float
    nll: float
    nll_shifted: float


def paper_table(
    calibrators: Mapping[str, Fit],
    clean: Outputs,
    labels: ArrayLike,
    shifted: Sequence[tuple[Outputs, ArrayLike]],
    folds: int = 5,
    seed: int = 0,
) -> list[Line]:
    """The lines of the paper's Tables 2 and 3 for one model, the uncalibrated one ("none") first.

    Clean numbers: `folds`-fold cross validation on the clean set, pooled. Shifted numbers: fitted to the whole clean
    set; accuracy, ECE and NLL of each condition in `shifted` (a corruption at a severity), then averaged.
    """
    if not shifted:
        raise wrong("shifted", "at least one condition", "none", "pass (outputs, labels) for each")
    targets = torch.from_numpy(classes("labels", labels, clean.N, clean.K))
    uncalibrated = [_measure(outputs.logits, truth) for outputs, truth in shifted]
    lines = [_line("none", _measure(clean.logits, targets), uncalibrated)]
    for name, calibrator in calibrators.items():
        inside = _measure(cross_validate(calibrator, clean, targets, folds, seed), targets)
        fitted = _fit(calibrator, clean, targets)
        lines.append(_line(name, inside, [_measure(fitted(outputs), truth) for outputs, truth in shifted]))
    return lines


_Numbers = tuple[float, float, float]
"""Accuracy, ECE, NLL."""


def _fit(calibrator: Fit, outputs: Outputs, labels: Tensor) -> Calibrator:
    fit: Callable[[Outputs, Tensor], Calibrator] = getattr(calibrator, "fit", calibrator)
    return fit(outputs, labels)


def _measure(logits: Tensor, labels: ArrayLike) -> _Numbers:
    probabilities = torch.softmax(logits.double(), 1).numpy()
    return accuracy(probabilities, labels), ece(probabilities, labels), nll(probabilities, labels)


def _line(name: str, clean: _Numbers, shifted: Sequence[_Numbers]) -> Line:
    means = [fmean(values) for values in zip(*shifted, strict=True)]
    pairs = zip(clean, means, strict=True)  # a clean number and its shifted one, in the order of the fields
    return Line(name, *(value for pair in pairs for value in pair))
