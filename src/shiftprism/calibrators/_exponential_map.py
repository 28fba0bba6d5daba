"""GSD's calibration: two numbers for all inputs, and an exponential map of the norm (Tian et al. 2021)."""

import math

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._descent import cholesky_solver, descend
from shiftprism.calibrators._scaled_loss import ScaledLoss
from shiftprism.calibrators._temperature import optimal_temperature, why_keep_temperature
from shiftprism.heads import SMALLEST_NORM
from shiftprism.outputs import Outputs


class ExponentialMap(Calibrator):
    """(1 + β (1 − e^(−c|f|))/|f|)/α · raw, two numbers α and β for all inputs (Tian et al. 2021).

    β of the GSD head fades out where the norm is small: c = −ln(0.1) / (mean − std) of the validation norms, so the map
    reaches 0.9 one deviation below the mean. α may exceed 1 here, so that an over-confident model can be softened.
    `fit` tunes α and β with the map in place; `as_published=True` tunes them without it and adds it afterwards.

    >>> from shiftprism.heads import Linear
    >>> outputs = Linear(4, 3).outputs(torch.rand(100, 4))
    >>> ExponentialMap.fit(outputs, torch.arange(100) % 3).alpha > 0
    tensor(True)
    """

    keeps_predictions = includes_temperature = needs_norms = True
    alpha: Tensor
    beta: Tensor
    rate: Tensor

    def __init__(
        self,
        alpha: float | Tensor,
        beta: float | Tensor,
        rate: float | Tensor,
        *,
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        """`rate` is c."""
        numbers = {"alpha": float(alpha), "beta": float(beta), "rate": float(rate)}
        for name, value in numbers.items():
            if not (value > 0 or (name == "beta" and value == 0)) or value == math.inf:
                raise wrong(name, "positive and finite", value, "α = 1 and β = 0 leave the raw logits as they are")
        super().__init__(report, unchanged, **numbers)

    @classmethod
    def _fit(cls, data: FitData, *, as_published: bool = False) -> list[Candidate]:
        norms = np.maximum(data.outputs.norms.numpy(), SMALLEST_NORM)
        reach = float(norms.mean() - norms.std())
        rate = math.log(10) / (reach if reach > 0 else float(norms.mean()))
        loss = ScaledLoss(data.raw, data.labels)
        best = optimal_temperature(loss)
        scaled = cls(best.temperature, 0.0, rate)
        if reason := why_keep_temperature(loss):
            return [best.candidate(scaled, reason)]
        share = 1 / norms if as_published else -np.expm1(-rate * norms) / norms
        alpha, beta, converged, iterations = _minimum(loss, share, best.temperature)
        fitted = Candidate(cls(alpha, beta, rate), converged, best.iterations + iterations, best.note)
        return [fitted] if as_published else [fitted, best.candidate(scaled, "β was of no use")]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        norms, dtype = outputs.norms, outputs.norms.dtype
        safe = norms.clamp_min(SMALLEST_NORM)
        mapped = -torch.expm1(-self.rate.to(dtype) * safe)
        m = (1 + self.beta.to(dtype) * mapped / safe) / self.alpha.to(dtype)
        return m[:, None] * outputs.raw


def _minimum(loss_of: ScaledLoss, share: Floats, temperature: float) -> tuple[float, float, bool, int]:
    """α, β of m = u + v · share with u = 1/α and v = β/α; θ = (ln u, ln v), so both are positive."""
    both = np.stack([np.ones(len(share)), share])
    start = np.log([0.9 / temperature, 0.1 / temperature / float(np.median(share))])
    prior = 1 / (18 * len(share))  # a Gaussian of deviation 3 about the start: neither part runs to 0 or ∞

    def terms_at(theta: Floats) -> Floats:
        return both * np.exp(np.clip(theta, start - 20, start + 20))[:, None]

    def objective(theta: Floats) -> tuple[float, Floats]:
        terms, away = terms_at(theta), theta - start
        loss, means, _ = loss_of(terms.sum(0), moments=1)
        slope = means - loss_of.label_gaps
        return loss + prior * float(away @ away), terms @ slope / len(share) + 2 * prior * away

    terms = terms_at(start)
    bend = loss_of(terms.sum(0), moments=2)[2]
    hessian = (terms * bend) @ terms.T / len(share) + 2 * prior * np.eye(2)
    found = descend(objective, start, cholesky_solver(hessian))
    u, v = np.exp(np.clip(found.point, start - 20, start + 20))
    return float(1 / u), float(v / u), found.converged, found.iterations
