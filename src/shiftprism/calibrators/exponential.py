"""GSD's calibration: two numbers for all inputs, and an exponential map of the norm (Tian et al. 2021)."""

import math
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._calibrator import FEWEST, UNFITTED, Calibrator, Report, fit_data, mean_nll
from shiftprism.calibrators._descent import descend, factored
from shiftprism.calibrators._multiplier import Scaled
from shiftprism.calibrators.temperature import optimal_temperature
from shiftprism.heads import SMALLEST_NORM
from shiftprism.outputs import Outputs


class ExponentialMap(Calibrator):
    """m · raw with m = (1 + β (1 − exp(−c |f|)) / |f|) / α: β of the GSD head fades out where the norm is small.

    α, β > 0 are two numbers; c = −ln(0.1) / (mean − std) of the validation norms, so that the map reaches 0.9 one
    deviation below the mean. α may exceed 1 here, so that an over-confident model can be softened.

    >>> from shiftprism.heads import Linear
    >>> outputs = Linear(4, 3).outputs(torch.rand(100, 4))
    >>> fitted = ExponentialMap.fit(outputs, outputs.predictions)
    >>> fitted.report.nll_after < fitted.report.nll_before
    True
    """

    alpha: Tensor
    beta: Tensor
    rate: Tensor
    unchanged: Tensor
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        alpha: float | Tensor,
        beta: float | Tensor,
        rate: float | Tensor,
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        """`unchanged` gives the model's own logits as they are."""
        super().__init__()
        for name, value in (("alpha", float(alpha)), ("beta", float(beta)), ("rate", float(rate))):
            if not (value > 0 or (name == "beta" and value == 0)) or value == math.inf:
                raise wrong(name, "positive and finite", value, "α = 1 and β = 0 leave the raw logits as they are")
        numbers = {"alpha": float(alpha), "beta": float(beta), "rate": float(rate)}
        kept = {name: torch.tensor(value) for name, value in numbers.items()}
        self._hold(report, **kept, unchanged=torch.tensor(bool(unchanged)))

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        as_published: bool = False,
    ) -> "ExponentialMap":
        """α and β by the cross entropy with the map in place; `as_published` tunes them without it and adds it after.

        It needs |f|: bare `logits=` or `probabilities=` are refused.
        """
        data = fit_data(outputs, labels, logits, probabilities)
        norms = np.maximum(data.outputs.norms.numpy(), SMALLEST_NORM)
        reach = float(norms.mean() - norms.std())
        rate = math.log(10) / (reach if reach > 0 else float(norms.mean()))
        share = 1 / norms if as_published else -np.expm1(-rate * norms) / norms
        best = optimal_temperature(data.raw, data.labels)
        alpha, beta, converged, steps, note = best.temperature, 0.0, best.converged, 0, best.note
        if len(norms) < FEWEST:
            note = f"kept the temperature: fewer than {FEWEST} samples"
        elif not note.startswith("every prediction was right"):
            alpha, beta, converged, steps = _minimum(data.raw, data.labels, share, best.temperature)
        before = mean_nll(data.logits, data.labels)
        report = Report(converged, steps + best.iterations, before, before, note)
        tries = [cls(alpha, beta, rate, report=report)]
        if not as_published:
            tries.append(cls(best.temperature, 0.0, rate, report=report._replace(note=note or "β was of no use")))
        for fitted in tries:
            after = mean_nll(fitted(data.outputs).numpy(), data.labels)
            if after <= min(before, best.after + 1e-9 if not as_published else before):
                fitted.report = fitted.report._replace(nll_after=after)
                return fitted
        note = "kept the model's own logits: the fit was worse"
        return cls(1.0, 0.0, rate, True, report._replace(note=note))

    def forward(self, outputs: Outputs) -> Tensor:
        norms, dtype = outputs.norms, outputs.norms.dtype
        safe = norms.clamp_min(SMALLEST_NORM)
        mapped = -torch.expm1(-self.rate.to(dtype) * safe)
        m = (1 + self.beta.to(dtype) * mapped / safe) / self.alpha.to(dtype)
        return torch.where(self.unchanged, outputs.logits, m[:, None] * outputs.raw)


def _minimum(raw: Floats, labels: Integers, share: Floats, temperature: float) -> tuple[float, float, bool, int]:
    """α, β of m = u + v · share with u = 1/α and v = β/α, both positive through their logarithms."""
    loss_of = Scaled(raw, labels)
    both = np.stack([np.ones(len(share)), share])

    first = np.log([0.9 / temperature, 0.1 / temperature / float(np.median(share))])
    weak = 1 / (18 * len(share))  # a Gaussian of deviation 3 about the temperature: neither part runs to 0 or ∞

    def parts(theta: Floats) -> Floats:
        return both * np.exp(np.clip(theta, first - 20, first + 20))[:, None]

    def objective(theta: Floats) -> tuple[float, Floats]:
        terms, away = parts(theta), theta - first
        loss, slope, _ = loss_of(terms.sum(0))
        return loss + weak * float(away @ away), terms @ slope / len(share) + 2 * weak * away

    terms = parts(first)
    bend = loss_of(terms.sum(0), curved=True)[2]
    found = descend(objective, first, factored((terms * bend) @ terms.T / len(share) + 2 * weak * np.eye(2)))
    u, v = np.exp(np.clip(found.point, first - 20, first + 20))
    return float(1 / u), float(v / u), found.converged, found.iterations
