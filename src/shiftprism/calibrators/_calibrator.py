"""What every calibrator is: a fitted, immutable module from Outputs to logits, with a report of its fit."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors.torch import save_file
from torch import Tensor, nn

from shiftprism._checks import Floats, Integers, classes, matrix, wrong
from shiftprism._files import replacing, write_text
from shiftprism.outputs import Outputs

FORMAT = "shiftprism-calibrator-1"
FEWEST = 50
"""With fewer samples than this a fit of many parameters cannot be judged, and the temperature is taken."""
_SMALLEST = float(np.finfo(np.float64).tiny)


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
    """Outputs in, calibrated logits (N, K) out. The constructor takes the buffers by name, the settings, the report."""

    keeps_predictions: ClassVar[bool] = True
    """Whether the class predicted before still has the largest logit after, always."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Names of constructor arguments that are words, not tensors; they are attributes as well."""
    report: Report

    @classmethod
    @abstractmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> "Calibrator":
        """Fitted to Outputs, or to bare `logits=` or `probabilities=` (N, K), with `labels` (N,)."""

    @abstractmethod
    def forward(self, outputs: Outputs) -> Tensor:
        """Calibrated logits (N, K), in the dtype of the Outputs."""

    def probabilities(
        self,
        outputs: Outputs | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> Tensor:
        """Calibrated probabilities (N, K) in float64, from whatever a fit takes."""
        device = next(self.buffers()).device
        with torch.no_grad():
            calibrated: Tensor = self(given(outputs, logits, probabilities).to(device))
            return torch.softmax(calibrated.double(), 1)

    def save(self, folder: str | Path, model: str = "") -> None:
        """Write `calibrator.safetensors`, then `calibrator.json`: a folder that has the second is whole.

        `model` may carry the fingerprint of the classifier it was fitted to; `load` can demand it.
        """
        folder = Path(folder)
        with replacing(folder / "calibrator.safetensors") as beside:
            save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, beside)
        about = {
            "format": FORMAT,
            "kind": type(self).__name__,
            "settings": {name: getattr(self, name) for name in self.settings},
            "report": {name: _plain(value) for name, value in self.report._asdict().items()},
            "model": model,
        }
        write_text(folder / "calibrator.json", json.dumps(about, indent=2) + "\n")

    def _hold(self, report: Report, **tensors: Tensor) -> None:
        """Register every tensor as a buffer in float32 (flags as they are) and keep the report."""
        for name, tensor in tensors.items():
            found = tensor.detach()
            self.register_buffer(name, found.clone() if found.dtype == torch.bool else found.float().clone())
        self.report = report


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value  # JSON has no NaN


class FitData(NamedTuple):
    """What a fit works with: everything finite, on the CPU and in float64."""

    outputs: Outputs
    labels: Integers

    @property
    def logits(self) -> Floats:
        """(N, K)."""
        return np.asarray(self.outputs.logits.numpy())

    @property
    def raw(self) -> Floats:
        """(N, K)."""
        return np.asarray(self.outputs.raw.numpy())


def fit_data(
    outputs: Outputs | None,
    labels: ArrayLike | None,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
) -> FitData:
    """The public door of every fit: what was given, checked."""
    found = given(outputs, logits, probabilities)
    if labels is None:
        raise wrong("labels", "given", "None", "calibration needs labelled validation data")
    if found.N == 0:
        raise wrong("outputs", "non-empty", "no rows", "calibration needs labelled validation data")
    double = Outputs(*(field.detach().to("cpu", torch.float64) for field in found)).check()
    return FitData(double, classes("labels", labels, found.N, found.K))


def given(outputs: Outputs | None, logits: ArrayLike | None = None, probabilities: ArrayLike | None = None) -> Outputs:
    """Outputs from the one of the three that was given; bare arrays are never guessed to be one or the other."""
    named = {"outputs": outputs, "logits": logits, "probabilities": probabilities}
    got = [name for name, value in named.items() if value is not None]
    if len(got) != 1:
        advice = "pass an Outputs, or name what the array holds: logits=… or probabilities=…"
        raise wrong("outputs", "the only one given of " + ", ".join(named), ", ".join(got) or "none", advice)
    if outputs is not None:
        if not isinstance(outputs, Outputs):
            advice = "say what it holds: logits=… or probabilities=…"
            raise wrong("outputs", "an Outputs", type(outputs).__name__, advice)
        return outputs
    if logits is not None:
        return Outputs.from_logits(torch.from_numpy(matrix("logits", logits)))
    return Outputs.from_logits(torch.from_numpy(_log_probabilities(probabilities)))


def _log_probabilities(values: Any) -> Floats:
    array = matrix("probabilities", values)
    sums = array.sum(1)
    if array.min() < 0 or np.abs(sums - 1).max() > 1e-3:
        got = f"values from {array.min():g} and sums from {sums.min():g} to {sums.max():g}"
        raise wrong("probabilities", "rows of numbers ≥ 0 that sum to 1", got, "pass logits=… if these are logits")
    return np.asarray(np.log(np.maximum(array, _SMALLEST)))


def mean_nll(logits: Floats, labels: Integers) -> float:
    """The mean cross entropy of logits (N, K)."""
    peak = logits.max(1)
    total = np.einsum("nk->n", np.exp(logits - peak[:, None]))
    return float(np.mean(np.log(total) + peak - logits[np.arange(len(labels)), labels]))
