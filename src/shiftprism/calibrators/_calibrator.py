"""What every calibrator is: a fitted, immutable module from Outputs to logits, with a report of its fit."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftprism._checks import classes, wrong
from shiftprism.outputs import Outputs


class Report(NamedTuple):
    """How a fit ended. The two NLLs are means over the fit set: of the model's own logits, of the calibrated ones."""

    converged: bool
    iterations: int
    nll_before: float
    nll_after: float
    note: str = ""
    """What a reader should know, such as a fall-back that was taken; empty when all went as asked."""


UNFITTED = Report(True, 0, float("nan"), float("nan"), "made from given parameters")


class Calibrator(nn.Module, ABC):
    """Outputs in, calibrated logits (N, K) out."""

    report: Report

    @abstractmethod
    def forward(self, outputs: Outputs) -> Tensor:
        """Calibrated logits (N, K), in the dtype of the Outputs."""


def fit_data(outputs: Outputs, labels: ArrayLike) -> tuple[Outputs, Tensor]:
    """Outputs and labels checked, detached, on the CPU and in float64: what a fit works with."""
    if not isinstance(outputs, Outputs):
        raise wrong("outputs", "an Outputs", type(outputs).__name__, "wrap bare logits in Outputs.from_logits(logits)")
    if outputs.N == 0:
        raise wrong("outputs", "non-empty", "no rows", "calibration needs labelled validation data")
    double = Outputs(*(field.detach().to("cpu", torch.float64) for field in outputs)).check()
    return double, torch.from_numpy(classes("labels", labels, outputs.N, outputs.K))


def mean_nll(logits: Tensor, labels: Tensor) -> float:
    """The mean cross entropy, in float64."""
    return float(F.cross_entropy(logits.double(), labels))
