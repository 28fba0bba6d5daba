"""The contract of a calibrator, written once: `fit` checks the data, calls the method's own fit, and judges it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftprism._checks import Floats, Integers, classes, matrix, wrong
from shiftprism._files import WEIGHTS, fingerprint, write_sealed, write_tensors
from shiftprism.calibrators._acceptance import HeldOut, Losses, is_clear, sample_losses, second_choices
from shiftprism.calibrators._scaled_loss import ScaledLoss
from shiftprism.metrics import ece
from shiftprism.outputs import Outputs

FORMAT = "shiftprism-calibrator-2"
ABOUT = "calibrator.json"
OLD_WEIGHTS = "calibrator.safetensors"
"""Where format 1 kept the tensors."""
Kept = Literal["fit", "temperature", "logits"]
_SMALLEST = float(np.finfo(np.float64).tiny)
_KEPT = {"fit": "", "temperature": "kept the temperature", "logits": "kept the model's own logits"}
Shifted = Mapping[str, tuple[Outputs, ArrayLike]]
"""Shifted copies of clean data with their labels, by the name of what was done to them."""
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
    held_out_nll_before: float = math.nan
    """By cross validation, as are the next three: every sample is judged by a fit to the other folds. NaN where the fit
    set itself decided, in files of older versions, and where there is one sample."""
    held_out_nll_after: float = math.nan
    held_out_ece_before: float = math.nan
    held_out_ece_after: float = math.nan


UNFITTED = Report(True, 0, float("nan"), float("nan"), "made from given parameters")


class Candidate(NamedTuple):
    """What a method's own fit hands to `Calibrator.fit`."""

    calibrator: "Calibrator"
    converged: bool
    iterations: int
    """All that the method spent, searches that led nowhere included."""
    note: str = ""
    kept: Kept = "fit"
    fold_options: Mapping[str, Any] = {}
    """Options that spare the fits of cross validation a search, such as the penalty that was found."""


class Calibrator(nn.Module, ABC):
    """Outputs in, calibrated logits (N, K) out.

    A method writes its constructor (parameters by name, then `unchanged` and `report`), `_fit` and `_calibrate`, and it
    marks which of the following laws it obeys. The law suite in `tests/test_calibrators.py` tests what is marked.
    """

    needs_shifted: ClassVar[bool] = False
    """Whether it is fitted to clean data and shifted copies of it: `fit(outputs, labels, shifted=…)`."""
    keeps_predictions: ClassVar[bool] = False
    """Law: the predicted class keeps the largest logit (rounding may tie, never reverse)."""
    includes_temperature: ClassVar[bool] = False
    """Two laws of temperature-like methods, which can express logits / T for any T: a fit recovers the temperature that
    labels were drawn with, and where every prediction is right it ends at an NLL of 1/(N + 2) or keeps the logits."""
    probabilities_suffice: ClassVar[bool] = False
    """Law: a fit to probabilities equals one to their logits. False where a shift of all logits of an input matters
    (`Matrix`), or where rounding may move a sample to the next bin (`Histogram`)."""
    needs_norms: ClassVar[bool] = False
    """Whether it reads |f|, so that bare logits or probabilities are refused."""
    errors_to_beat: ClassVar[float] = 1.0
    """How many standard errors of the held-out difference a gain must exceed."""
    flattens: ClassVar[bool] = False
    """Whether it can give one confidence to inputs of many: a mistake that the model itself held likely then costs as
    much as any other, and the acceptance counts that."""
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
        shifted: Shifted | None = None,
        **options: Any,
    ) -> AnyCalibrator:
        """Fit to Outputs, or to bare `logits=` or `probabilities=` (N, K), with `labels` (N,).

        A method that `needs_shifted` is fitted to these and to `shifted`, {name: (Outputs, labels)}, together.
        The `options` are those of the method; its class lists them. Never worse than the model's own logits on the data
        of the fit, and applied only where held-out folds of them show a gain: `_accept` says how this is decided.
        """
        data = check_fit_data(as_outputs(outputs, logits, probabilities), labels)
        data = _add_shifted(cls, data, shifted)
        candidates = cls._fit(data, **options)
        options = {**options, **candidates[0].fold_options}
        chosen, before, after, held_out = _accept(data, candidates, lambda part: cls._fit(part, **options))
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
            **held_out,
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
        folder, tensors = Path(folder), self.state_dict()
        write_tensors(folder / WEIGHTS, tensors, {"format": FORMAT})
        report = {name: None if value != value else value for name, value in self.report._asdict().items()}
        about = {
            "format": FORMAT,
            "kind": type(self).__name__,
            "settings": {name: getattr(self, name) for name in self.settings},
            "report": report,  # JSON has no NaN
            "model": model,
            "weights": fingerprint(tensors),
        }
        write_sealed(folder / ABOUT, about)
        (folder / OLD_WEIGHTS).unlink(missing_ok=True)


@dataclass(frozen=True)
class FitData:
    """What a fit works with: everything finite, on the CPU and in float64."""

    outputs: Outputs
    labels: Integers
    conditions: Integers | None = None
    """(N,): 0 for clean rows, then a number for each shifted set; None where a method needs no shifted data."""

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


class Accepted(NamedTuple):
    """The candidate to apply, the NLL of the fit set before and after, and the held-out fields of the report."""

    candidate: Candidate
    nll_before: float
    nll_after: float
    held_out: dict[str, float]


def _accept(data: FitData, candidates: list[Candidate], fit: Callable[[FitData], list[Candidate]]) -> Accepted:
    """Go from the model's own logits to the preferred candidate; each must beat the simpler one that stands so far.

    It must not be worse on the fit set, and better by more than a standard error on held-out folds (two for some:
    `errors_to_beat`). The folds are fitted only once they are needed: many samples and a large gain are clear without.
    """
    labels, second = torch.from_numpy(data.labels), second_choices(data.outputs.logits)
    own = sample_losses(data.outputs.logits, labels, second)
    on_fit_set = [sample_losses(each.calibrator(data.outputs), labels, second) for each in candidates]
    held_out = _hold_out(data, len(candidates), fit)
    chosen, best, place = candidates[0]._replace(kept="logits", note="the fit was worse"), own, len(candidates)
    for number in reversed(range(len(candidates))):
        candidate, losses = candidates[number], on_fit_set[number]
        errors, flat = candidate.calibrator.errors_to_beat, candidate.calibrator.flattens
        if not losses.mean <= best.mean:  # NaN, from a search that diverged, is not
            continue
        if not is_clear(losses, best, _count_parameters(candidate.calibrator), likely=flat):
            better, ours, theirs = held_out.compare(number, place, errors, flat)
            if not better:
                chosen = chosen._replace(note=_explain(candidate, ours, theirs)) if chosen.kept != "fit" else chosen
                continue
        chosen, best, place = candidate, losses, number
    if chosen.kept != "logits" and (cost := _describe_clean_cost(data, own, best, held_out, place)):
        chosen = chosen._replace(note="; ".join(filter(None, (chosen.note, cost))))
    return Accepted(chosen, own.mean, best.mean, _describe_held_out(held_out, data, len(candidates), place))


def _describe_clean_cost(data: FitData, own: Losses, best: Losses, held_out: HeldOut, place: int) -> str:
    """What clean rows pay for the shifted ones, on held-out folds where there are some; "" where they pay nothing."""
    if data.conditions is None:
        return ""
    rows = held_out.rows.numpy() if len(held_out.rows) else np.arange(len(data.labels))
    if len(held_out.rows):
        own, best = held_out.losses(-1), held_out.losses(place)
    clean = data.conditions[rows] == 0
    before, after = float(own.label[clean].mean()), float(best.label[clean].mean())
    return f"clean rows alone are worse (NLL {after:.4f} against {before:.4f})" if after > before else ""


def _hold_out(data: FitData, count: int, fit: Callable[[FitData], list[Candidate]]) -> HeldOut:
    """The candidates on held-out folds; of one sample, the model's own logits."""

    def fit_rows(rows: Integers) -> list[Callable[[Integers], Tensor]]:
        if not len(rows):
            return [lambda rows: data.outputs.logits[torch.from_numpy(rows)]]
        conditions = None if data.conditions is None else data.conditions[rows]
        part = FitData(data.outputs.rows(torch.from_numpy(rows)), data.labels[rows], conditions)
        return [partial(calibrate, each.calibrator) for each in fit(part)]

    def calibrate(calibrator: Calibrator, rows: Integers) -> Tensor:
        calibrated: Tensor = calibrator(data.outputs.rows(torch.from_numpy(rows)))
        return calibrated

    return HeldOut(fit_rows, torch.from_numpy(data.labels), data.outputs.logits, count)


def _describe_held_out(held_out: HeldOut, data: FitData, count: int, place: int) -> dict[str, float]:
    """The fields of the report that are cross-validated: none where no folds were needed."""
    described = {}
    for name, number in (("before", count), ("after", place)) if len(held_out.rows) else ():
        described[f"held_out_nll_{name}"] = held_out.losses(number).mean
        labels = data.labels[held_out.rows.numpy()]
        described[f"held_out_ece_{name}"] = ece(torch.softmax(held_out.logits(number), 1), labels)
    return described


def _count_parameters(calibrator: Calibrator) -> int:
    return sum(tensor.numel() for tensor in calibrator.state_dict().values() if tensor.is_floating_point())


def _explain(candidate: Candidate, fitted: Losses, simpler: Losses) -> str:
    what = "the temperature" if candidate.kept == "temperature" else "the fit"
    return f"{what} was not clearly better on held-out folds (NLL {fitted.mean:.4f} against {simpler.mean:.4f})"


def check_fit_data(outputs: Outputs, labels: ArrayLike | None) -> FitData:
    """The data of a fit, or an error that says what is wrong with them."""
    if labels is None:
        raise wrong("labels", "given", "None", "calibration needs labelled validation data")
    if outputs.N == 0:
        raise wrong("outputs", "non-empty", "no rows", "calibration needs labelled validation data")
    double = Outputs(*(field.detach().to("cpu", torch.float64) for field in outputs)).check()
    return FitData(double, classes("labels", labels, outputs.N, outputs.K))


def _add_shifted(kind: type[Calibrator], data: FitData, shifted: Shifted | None) -> FitData:
    """The data of a fit with the shifted sets after the clean rows, for a method that needs them."""
    if not kind.needs_shifted:
        if shifted is not None:
            advice = "use a method that is fitted to shifted data, such as shift-aware"
            raise wrong("shifted", f"left out for {kind.__name__}", "some", advice)
        return data
    if not shifted:
        advice = "make copies of the images with shifts.make_shifted_copies and predict them with the same classifier"
        raise wrong("shifted", "{name: (Outputs, labels)} of shifted copies", "none", advice)
    sets = [data, *(check_fit_data(as_outputs(outputs), labels) for outputs, labels in shifted.values())]
    outputs = Outputs.concat([part.outputs for part in sets])
    labels = np.concatenate([part.labels for part in sets])
    return FitData(outputs, labels, np.repeat(np.arange(len(sets)), [len(part.labels) for part in sets]))


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
