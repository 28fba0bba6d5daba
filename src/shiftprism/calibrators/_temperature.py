"""Temperature scaling: one number for all inputs and classes, and the search for it."""

import math
from typing import NamedTuple

from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._scaled_loss import ScaledLoss
from shiftprism.outputs import Outputs

FEWEST = 50
"""With fewer samples than this a fit of many parameters cannot be judged, and the temperature is kept."""
_LARGEST_LOG = 12.0
"""ln T stays within ± this: labels no better than chance want T = ∞, in the limit."""
_NEAR = 1e-9
"""Relative to it: how near the floor a search ends where there is no optimum."""
_FEW = 1000
"""With more than four times as many samples, the search starts on an even selection of this many."""


class Temperature(Calibrator):
    """z / T, one number for all inputs (Guo et al. 2017).

    >>> import torch
    >>> outputs = Outputs.from_logits(torch.tensor([[4.0, 0.0]]).repeat(400, 1))
    >>> fitted = Temperature.fit(outputs, [0, 0, 0, 1] * 100)  # right three times in four: softmax should say 3/4
    >>> torch.softmax(fitted(outputs), 1)[0, 0]
    tensor(0.7500)
    """

    keeps_predictions = includes_temperature = probabilities_suffice = True
    temperature: Tensor

    def __init__(
        self, temperature: float | Tensor = 1.0, *, unchanged: bool | Tensor = False, report: Report = UNFITTED
    ) -> None:
        super().__init__(report, unchanged, temperature=check_temperature(float(temperature)))

    @classmethod
    def _fit(cls, data: FitData) -> list[Candidate]:
        best = optimal_temperature(data.loss)
        return [Candidate(cls(best.temperature), best.converged, best.iterations, best.note)]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        return outputs.logits / self.temperature.to(outputs.logits.dtype)


def check_temperature(value: float) -> float:
    """`value`, if it is a temperature."""
    if not 0 < value < math.inf:
        raise wrong("temperature", "positive and finite", value, "1.0 leaves the logits as they are")
    return value


class Optimum(NamedTuple):
    """Where the search for a temperature ended."""

    log_temperature: float
    converged: bool
    iterations: int
    note: str = ""

    @property
    def temperature(self) -> float:
        """T."""
        return math.exp(self.log_temperature)

    def candidate(self, calibrator: Calibrator, note: str = "the fit was no better") -> Candidate:
        """A calibrator that expresses this temperature, as a fall-back."""
        return Candidate(calibrator, self.converged, self.iterations, note, "temperature")


def optimal_temperature(loss: ScaledLoss, near: float | None = None) -> Optimum:
    """The T that minimises the cross entropy of logits / T; where no prediction is wrong, one that ends at a floor.

    Without a wrong prediction the loss falls as T does, and a network tuned so would be certain of everything. The
    search then ends 1/(N + 2) above the limit (0 but for ties): what N answers allow by the rule of succession.
    `near` is a T to start from, where one is known.
    """
    samples = len(loss.labels)
    if samples <= 4 * _FEW or loss.no_optimum:
        return _newton(loss)
    if near is not None:
        return _newton(loss, start=math.log(near))
    step = samples // _FEW
    rough = _newton(ScaledLoss(loss.gaps[::step], loss.labels[::step]), tolerance=1e-3, most=20)
    best = _newton(loss, start=rough.log_temperature)
    return best._replace(iterations=rough.iterations + best.iterations)


def _newton(loss: ScaledLoss, start: float = 0.0, tolerance: float = 1e-7, most: int = 100) -> Optimum:
    """Newton's method on τ = ln T, so that T is positive; a step is halved until the loss falls."""
    floor = loss.infimum + 1 / (len(loss.labels) + 2) if loss.no_optimum else -math.inf
    note = f"{_nothing_wrong(loss)}: no sharper than that many answers allow" if loss.no_optimum else ""
    tau, (value, slope, curvature) = start, _derivatives(loss, start)
    for iteration in range(most):
        # The search comes to the floor from above and ends a rounding short of it.
        if abs(slope) <= tolerance or value <= floor * (1 + _NEAR):
            return Optimum(tau, True, iteration, note)
        # towards a floor Newton's method solves loss = floor; elsewhere slope = 0
        step = (floor - value) / slope if loss.no_optimum else -slope / curvature
        step = math.copysign(min(abs(step), 2.0), step)
        while (ahead := _derivatives(loss, _clip(tau + step)))[0] > value:
            step /= 2
            if abs(step) < 1e-12:  # rounding allows no lower loss
                return Optimum(tau, True, iteration)
        if _clip(tau + step) == tau:
            return Optimum(tau, True, iteration, "at the edge of the search range")
        tau, (value, slope, curvature) = _clip(tau + step), ahead
    return Optimum(tau, False, most, "no convergence: treat the temperature with care")


def _clip(tau: float) -> float:
    return min(max(tau, -_LARGEST_LOG), _LARGEST_LOG)


def _derivatives(loss: ScaledLoss, tau: float) -> tuple[float, float, float]:
    """The loss, its slope and a positive curvature in τ: with b = 1/T, L_τ = −b L_b and L_ττ = b² L_bb + b L_b."""
    b = math.exp(-tau)
    value, means, variances = loss(b, moments=2)
    slope, bend = b * float(means.mean() - loss.label_gaps.mean()), b * b * float(variances.mean())
    # L is convex in b but not in τ: where L_ττ ≤ 0, b² L_bb (plus a little, should it underflow) points downhill too
    return value, -slope, bend + slope if bend + slope > 0 else max(bend, 1e-300)


def why_keep_temperature(loss: ScaledLoss, fewest: int = FEWEST) -> str:
    """Why these data cannot support more than a temperature; empty where they can."""
    if loss.no_optimum:
        return _nothing_wrong(loss)
    return f"fewer than {fewest} samples" if len(loss.labels) < fewest else ""


def _nothing_wrong(loss: ScaledLoss) -> str:
    return "every prediction was right" if loss.all_right else "no prediction was wrong, but some were ties"
