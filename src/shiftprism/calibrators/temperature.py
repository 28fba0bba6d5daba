"""Temperature scaling: one number for all inputs and classes."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Report, fit_data
from shiftprism.outputs import Outputs

LARGEST_LOG = 12.0
"""ln T stays within ± this: separable data wants T = 0 and data no better than chance T = ∞, in the limit."""
_FEW = 1000
"""On more than a few times this many rows the search begins on an even selection of this size."""


_AT_ONCE = 1 << 16
"""Numbers worked on at a time: what stays in the cache is read from memory once, not five times."""


class Temperature(Calibrator):
    """logits / T (Guo et al. 2017). The class predicted never changes.

    >>> outputs = Outputs.from_logits(torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]]))
    >>> fitted = Temperature.fit(outputs, [0, 0, 0, 1])  # right three times in four: softmax should say 3/4
    >>> torch.softmax(fitted(outputs), 1)[0, 0]
    tensor(0.7500)
    """

    temperature: Tensor

    def __init__(self, temperature: float | Tensor = 1.0, report: Report = UNFITTED) -> None:
        super().__init__()
        if not 0 < float(temperature) < math.inf:
            raise wrong("temperature", "positive and finite", float(temperature), "1.0 leaves the logits as they are")
        self._hold(report, temperature=torch.tensor(float(temperature)))

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> "Temperature":
        """The T that minimises the cross entropy of logits / T, by Newton's method on ln T."""
        data = fit_data(outputs, labels, logits, probabilities)
        best = optimal_temperature(data.logits, data.labels)
        return cls(best.temperature, Report(best.converged, best.iterations, best.before, best.after, best.note))

    def forward(self, outputs: Outputs) -> Tensor:
        return outputs.logits / self.temperature.to(outputs.logits.dtype)


class Optimum(NamedTuple):
    """Where the search for a temperature ended, and the mean NLL at T = 1 and there."""

    temperature: float
    iterations: int
    converged: bool
    before: float
    after: float
    note: str = ""


def separable(logits: Floats, labels: Integers) -> bool:
    """Whether every label has the largest logit: then sharper is always better on these data, without an optimum."""
    return bool((logits[np.arange(len(labels)), labels] >= logits.max(1)).all())


def optimal_temperature(logits: Floats, labels: Integers, tolerance: float = 1e-7, most: int = 100) -> Optimum:
    """The T that minimises the mean cross entropy of float64 logits (N, K) divided by it.

    With b = 1/T the loss is L(b) = mean[lse(b z) − b z_y], convex in b; its derivatives are softmax means and variances
    of z. In τ = ln T they become L_τ = −b L_b and L_ττ = b² L_bb + b L_b, where Newton steps keep T positive by
    construction. Where the curvature in τ is not positive, b² L_bb stands in for it. A step is halved until L falls.

    When all N predictions are right the loss falls to 0 as T does, and a network tuned so would be sure of everything.
    The search then ends where the loss is 1/(N + 2): what N right answers allow by the rule of succession.
    """
    peak = logits.max(1)
    z = logits - peak[:, None]  # a shift by row changes no probability and tames the exponentials
    picked = z[np.arange(len(z)), labels]
    floor = 1 / (len(z) + 2) if float(picked.min()) >= 0 else -math.inf
    curve = _Curve(z, float(picked.mean()))
    values = curve(0.0)
    before, tau, passed = values[0], 0.0, 0
    if len(z) > 4 * _FEW and floor < 0:
        step = len(z) // _FEW
        few = _Curve(z[::step], float(picked[::step].mean()))
        rough, _, passed, _, _ = _newton(few, 0.0, few(0.0), -math.inf, 1e-3, 20)
        closer = curve(rough)
        if closer[0] < before:
            tau, values = rough, closer
    tau, loss, steps, converged, note = _newton(curve, tau, values, floor, tolerance, most)
    return Optimum(math.exp(tau), steps + passed, converged, before, loss, note)


Derivatives = tuple[float, float, float]


def _newton(
    curve: "_Curve", tau: float, values: Derivatives, floor: float, tolerance: float, most: int
) -> tuple[float, float, int, bool, str]:
    """(τ, loss, steps, whether converged, note), from τ where the derivatives are `values`."""
    loss, slope, curvature = values
    for iteration in range(most):
        if abs(slope) <= tolerance or loss <= floor:
            note = "every prediction was right: no sharper than that many right answers allow" if floor > 0 else ""
            return tau, loss, iteration, True, note
        step = -slope / curvature if curvature > 0 else -math.copysign(1.0, slope)
        # near a floor the Newton step of the loss itself: it is reached, not passed
        step = (floor - loss) / slope if floor > 0 else step
        step = math.copysign(min(abs(step), 2.0), step)
        while True:
            candidate = min(max(tau + step, -LARGEST_LOG), LARGEST_LOG)
            values = curve(candidate)
            if values[0] <= loss:
                break
            step /= 2
            if abs(step) < 1e-12:  # no lower loss to be had in floating point: this is the optimum
                return tau, loss, iteration, True, ""
        if candidate == tau:
            return tau, loss, iteration, True, "at the edge of the search range"
        tau, (loss, slope, curvature) = candidate, values
    return tau, loss, most, False, "no convergence: treat the temperature with care"


class _Curve:
    """The loss as a function of τ, for z (N, K) with rows shifted to a maximum of 0 and the mean of the labels' z."""

    def __init__(self, z: Floats, target: float) -> None:
        self.z, self.target = z, target
        self._rows = max(1, _AT_ONCE // z.shape[1])
        self._weights = np.empty((self._rows, z.shape[1]))

    def __call__(self, tau: float) -> Derivatives:
        """Loss, slope and a positive curvature (or 0) in τ."""
        b = math.exp(-tau)
        logs = means = variances = 0.0
        for begin in range(0, len(self.z), self._rows):
            z = self.z[begin : begin + self._rows]
            weights = np.multiply(z, b, out=self._weights[: len(z)])
            np.exp(weights, out=weights)
            total = np.einsum("nk->n", weights)
            first = np.einsum("nk,nk->n", weights, z) / total
            weights *= z
            second = np.einsum("nk,nk->n", weights, z) / total
            logs += float(np.log(total).sum())
            means += float(first.sum())
            variances += float((second - first * first).sum())
        by_b, by_b_twice = means / len(self.z) - self.target, variances / len(self.z)
        full, part = b * b * by_b_twice + b * by_b, b * b * by_b_twice
        return logs / len(self.z) - b * self.target, -b * by_b, full if full > 0 else part
