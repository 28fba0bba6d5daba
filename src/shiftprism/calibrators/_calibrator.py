"""The contract of a calibrator, written once: `fit` checks the data, calls the method's own fit, and falls back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftprism._checks import Floats, Integers, classes, matrix, wrong
from shiftprism._files import WEIGHTS, write_json, write_tensors
from shiftprism.calibrators._scaled_loss import ScaledLoss, mean_nll
from shiftprism.outputs import Outputs

FORMAT = "shiftprism-calibrator-2"
ABOUT = "calibrator.json"
OLD_WEIGHTS = "calibrator.safetensors"
"""Where format 1 kept the tensors."""
Kept = Literal["fit", "temperature", "logits"]
_SMALLEST = float(np.finfo(np.float64).tiny)
_KEPT = {"fit": "", "temperature": "kept the temperature", "logits": "kept the model's own logits"}
AnyCalibrator = TypeVar("AnyCalibrator", bound="Calibrator")


class Report(NamedTuple):
    """How a fit ended. The two NLLs are means over the fit set: of the model's own logits, of the calibrated ones."""

    converged: bool
    iterations: int
    nll_before: float
    nll_after: float
    note: str = ""
    """What a reader should know, such as why a fall-back was taken; empty when there is nothing to say."""
    kept: Kept = "fit"
    """What the calibrator applies: the method's own fit, or the best temperature or the model's own logits instead."""
    all_right: bool = False
    """Whether every prediction on the fit set was right, so that the cross entropy has no optimum."""


UNFITTED = Report(True, 0, float("nan"), float("nan"), "made from given parameters")


class Candidate(NamedTuple):
    """What a method's own fit hands to `Calibrator.fit`."""

    calibrator: "Calibrator"
    converged: bool
    iterations: int
    """All that the method spent, searches that led nowhere included."""
    note: str = ""
    kept: Kept = "fit"


class Calibrator(nn.Module, ABC):
    """Outputs in, calibrated logits (N, K) out.

    A method writes its constructor (parameters by name, then `unchanged` and `report`), `_fit` and `_calibrate`, and it
    marks which of the following laws it obeys. The law suite in `tests/test_calibrators.py` tests what is marked.
    """

    keeps_predictions: ClassVar[bool] = False
    """Law: the predicted class keeps the largest logit (rounding may tie, never reverse)."""
    includes_temperature: ClassVar[bool] = False
    """Two laws of temperature-like methods, which can express logits / T for any T: a fit recovers the temperature that
    labels were drawn with, and where every prediction is right it ends at an NLL of 1/(N + 2)."""
    probabilities_suffice: ClassVar[bool] = False
    """Law: a fit to probabilities equals one to their logits. False where a shift of all logits of an input matters
    (`Matrix`), or where rounding may move a sample to the next bin (`Histogram`)."""
    needs_norms: ClassVar[bool] = False
    """Whether it reads |f|, so that bare logits or probabilities are refused."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Names of constructor arguments that are words, not tensors; they are attributes as well."""
    unchanged: Tensor
    report: Report

    def __init__(self, report: Report, unchanged: bool | Tensor, **parameters: float | Tensor) -> None:
        """Keep the parameters as buffers in float32. `unchanged` gives back the model's own logits."""
        super().__init__()
        for name, value in parameters.items():
            self.register_buffer(name, torch.as_tensor(value).detach().float().clone())
        self.register_buffer("unchanged", torch.tensor(bool(unchanged)))
        self.report = report

    @classmethod
    @abstractmethod
    def _fit(cls, data: "FitData", *_: Any, **options: Any) -> list[Candidate]:
        """The method's own fit, the preferred candidate first. Options are keywords with defaults."""

    @abstractmethod
    def _calibrate(self, outputs: Outputs) -> Tensor:
        """Calibrated logits (N, K), in the dtype of the Outputs."""

    @classmethod
    def fit(
        cls: type[AnyCalibrator],
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        **options: Any,
    ) -> AnyCalibrator:
        """Fit to Outputs, or to bare `logits=` or `probabilities=` (N, K), with `labels` (N,).

        The `options` are those of the method; its class lists them. Never worse than the model's own logits on the data
        of the fit: of the candidates the first is taken whose NLL no later one beats, and the last are these logits.
        """
        data = check_fit_data(as_outputs(outputs, logits, probabilities), labels)
        candidates = cls._fit(data, **options)
        before = after = data.loss(1.0)[0]
        chosen = candidates[0]._replace(kept="logits", note="the fit was worse")
        # From the last fall-back to the preferred candidate: each must be at least as good as all that come after it.
        for candidate in reversed(candidates):
            with np.errstate(invalid="ignore"):  # a search that diverged gives infinite logits, and a NaN here
                loss = mean_nll(candidate.calibrator(data.outputs).numpy(), data.labels)
            if loss <= after:  # never true of NaN
                chosen, after = candidate, loss
        fitted = chosen.calibrator
        assert isinstance(fitted, cls)
        fitted.unchanged.fill_(chosen.kept == "logits")
        fitted.report = Report(
            converged=chosen.converged,
            iterations=candidates[0].iterations,  # the preferred candidate counts all that were spent
            nll_before=before,
            nll_after=after,
            note=": ".join(filter(None, (_KEPT[chosen.kept], chosen.note))),
            kept=chosen.kept,
            all_right=data.loss.all_right,
        )
        return fitted

    def forward(self, outputs: Outputs) -> Tensor:
        """Calibrated logits (N, K), in the dtype of the Outputs."""
        return torch.where(self.unchanged, outputs.logits, self._calibrate(outputs))

    def probabilities(
        self,
        outputs: Outputs | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> Tensor:
        """Calibrated probabilities (N, K) in float64, from anything that `fit` takes."""
        with torch.no_grad():
            calibrated: Tensor = self(as_outputs(outputs, logits, probabilities).to(self.unchanged.device))
            return torch.softmax(calibrated.double(), 1)

    def save(self, folder: str | Path, model: str = "") -> None:
        """Write `weights.safetensors`, then `calibrator.json`: a folder that has the second is whole.

        `model` may carry the fingerprint of the classifier it was fitted to; `load` can demand it.
        """
        folder = Path(folder)
        write_tensors(folder / WEIGHTS, self.state_dict(), {"format": FORMAT})
        report = {name: None if value != value else value for name, value in self.report._asdict().items()}
        about = {
            "format": FORMAT,
            "kind": type(self).__name__,
            "settings": {name: getattr(self, name) for name in self.settings},
            "report": report,  # JSON has no NaN
            "model": model,
        }
        write_json(folder / ABOUT, about)
        (folder / OLD_WEIGHTS).unlink(missing_ok=True)


@dataclass(frozen=True)
class FitData:
    """What a fit works with: everything finite, on the CPU and in float64."""

    outputs: Outputs
    labels: Integers

    @property
    def logits(self) -> Floats:
        """(N, K): what the model predicts with."""
        return np.asarray(self.outputs.logits.numpy())

    @property
    def raw(self) -> Floats:
        """(N, K): the linear layer's own output."""
        return np.asarray(self.outputs.raw.numpy())

    @cached_property
    def loss(self) -> ScaledLoss:
        """The cross entropy of the model's own logits."""
        return ScaledLoss(self.logits, self.labels)


def check_fit_data(outputs: Outputs, labels: ArrayLike | None) -> FitData:
    """The data of a fit, or an error that says what is wrong with them."""
    if labels is None:
        raise wrong("labels", "given", "None", "calibration needs labelled validation data")
    if outputs.N == 0:
        raise wrong("outputs", "non-empty", "no rows", "calibration needs labelled validation data")
    double = Outputs(*(field.detach().to("cpu", torch.float64) for field in outputs)).check()
    return FitData(double, classes("labels", labels, outputs.N, outputs.K))


def as_outputs(
    outputs: Outputs | None = None, logits: ArrayLike | None = None, probabilities: ArrayLike | None = None
) -> Outputs:
    """Outputs from exactly one of the three. Whether a bare array holds logits or probabilities is never guessed.

    >>> as_outputs(logits=[[1.0, 2.0], [3.0, 4.0]])
    Outputs(N=2, D=0, K=2)
    """
    arguments = {"outputs": outputs, "logits": logits, "probabilities": probabilities}
    given = [name for name, value in arguments.items() if value is not None]
    if len(given) != 1:
        advice = "pass an Outputs, or name what the array holds: logits=… or probabilities=…"
        raise wrong("outputs", "the only one given of " + ", ".join(arguments), ", ".join(given) or "none", advice)
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
