"""Temperature scaling: one number for all inputs and classes."""

import math
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Report, fit_data, mean_nll
from shiftprism.outputs import Outputs

LARGEST_LOG = 12.0
"""ln T stays within ± this: separable data wants T = 0 and data no better than chance T = ∞, in the limit."""


class Temperature(Calibrator):
    """logits / T (Guo et al. 2017). The class predicted never changes.

    >>> outputs = Outputs.from_logits(torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]]))
    >>> fitted = Temperature.fit(outputs, [0, 0, 0, 1])  # right three times in four: softmax should say 3/4
    >>> torch.softmax(fitted(outputs), 1)[0, 0]
    tensor(0.7500)
    """

    def __init__(self, temperature: float = 1.0, report: Report = UNFITTED) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise wrong("temperature", "positive and finite", temperature, "1.0 leaves the logits as they are")
        self.register_buffer("temperature", torch.tensor(float(temperature)))
        self.temperature: Tensor
        self.report = report

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike) -> "Temperature":
        """The T that minimises the cross entropy of logits / T, by Newton's method on ln T."""
        double, targets = fit_data(outputs, labels)
        best = optimal_temperature(double.logits, targets)
        before, after = mean_nll(double.logits, targets), mean_nll(double.logits / best.temperature, targets)
        return cls(best.temperature, Report(best.converged, best.iterations, before, after, best.note))

    def forward(self, outputs: Outputs) -> Tensor:
        return outputs.logits / self.temperature.to(outputs.logits.dtype)


class Optimum(NamedTuple):
    """Where the search for a temperature ended."""

    temperature: float
    iterations: int
    converged: bool
    note: str = ""


def separable(logits: Tensor, labels: Tensor) -> bool:
    """Whether every label has the largest logit: then sharper is always better on these data, without an optimum."""
    return bool((logits.gather(1, labels[:, None]).squeeze(1) >= logits.amax(1)).all())


def optimal_temperature(logits: Tensor, labels: Tensor, tolerance: float = 1e-9, most: int = 100) -> Optimum:
    """The T that minimises the mean cross entropy of float64 logits (N, K) divided by it.

    With b = 1/T the loss is L(b) = mean[lse(b z) − b z_y], convex in b; its derivatives are softmax means and variances
    of z. In τ = ln T they become L_τ = −b L_b and L_ττ = b² L_bb + b L_b, where Newton steps keep T positive by
    construction. Where the curvature in τ is not positive, b² L_bb stands in for it. A step is halved until L falls.

    When all N predictions are right the loss falls to 0 as T does, and a network tuned so would be sure of everything.
    The search then ends where the loss is 1/(N + 2): what N right answers allow by the rule of succession.
    """
    z = logits - logits.amax(1, keepdim=True)  # a shift by row changes no probability and tames the exponentials
    target = z.gather(1, labels[:, None]).squeeze(1).mean()
    floor = 1 / (len(z) + 2) if separable(logits, labels) else -math.inf
    tau, (loss, slope, curvature) = 0.0, _derivatives(z, target, 0.0)
    for iteration in range(most):
        if abs(slope) <= tolerance or loss <= floor:
            note = "every prediction was right: no sharper than that many right answers allow" if floor > 0 else ""
            return Optimum(math.exp(tau), iteration, True, note)
        step = -slope / curvature if curvature > 0 else -math.copysign(1.0, slope)
        # near a floor the Newton step of the loss itself: it is reached, not passed
        step = (floor - loss) / slope if floor > 0 else step
        step = math.copysign(min(abs(step), 2.0), step)
        while True:
            candidate = min(max(tau + step, -LARGEST_LOG), LARGEST_LOG)
            values = _derivatives(z, target, candidate)
            if values[0] <= loss:
                break
            step /= 2
            if abs(step) < 1e-12:  # no lower loss to be had in floating point: this is the optimum
                return Optimum(math.exp(tau), iteration, True)
        if candidate == tau:
            return Optimum(math.exp(tau), iteration, True, "at the edge of the search range")
        tau, (loss, slope, curvature) = candidate, values
    return Optimum(math.exp(tau), most, False, "no convergence: treat the temperature with care")


def _derivatives(z: Tensor, target: Tensor, tau: float) -> tuple[float, float, float]:
    """Loss, slope and a positive curvature (or 0) in τ."""
    b = math.exp(-tau)
    weights = (b * z).exp_()
    total = weights.sum(1)
    first = torch.linalg.vecdot(weights, z) / total
    second = torch.linalg.vecdot(weights, z * z) / total
    by_b = float(first.mean() - target)
    by_b_twice = float((second - first * first).mean())
    loss = float(total.log().mean() - b * target)
    full, part = b * b * by_b_twice + b * by_b, b * b * by_b_twice
    return loss, -b * by_b, full if full > 0 else part
