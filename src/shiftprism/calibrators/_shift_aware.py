"""A temperature that reads style: fitted to clean data and to shifted copies of it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._descent import cholesky_solver, descend
from shiftprism.calibrators._temperature import optimal_temperature, why_keep_temperature
from shiftprism.outputs import Outputs
from shiftprism.scores import Contrast

_COMPONENTS = 50
"""The principal components of clean style that the distance is taken in; chosen as docs/style.md says."""
_CLIP = 6.0
"""The standardised features stay within ± this."""
_LOWEST, _HIGHEST = -6.0, 3.0
"""The limits of ln m: confidence is lowered and raised by no more than a factor e⁻⁶ to e³ of the logits."""
_PENALTY = 1e-3
"""Of the squared weights, beside a mean loss."""


class ShiftAware(Calibrator):
    """m(x) · z with ln m a quadratic function of two numbers of the style: softer where the image looks shifted.

    The two are the log odds of clean data against its shifted copies, as in the score `style`, and ln(1 + d²), where d
    is the distance from clean style in its first principal components, each of unit variance. Every class has the same
    factor m(x) > 0, so no prediction changes. `fit(outputs, labels, shifted={name: (outputs, labels), …})` gives clean
    data half of the weight and the named sets equal shares of the other half; keys may be corruptions or families.

    >>> ShiftAware.fit(Outputs.from_logits(torch.zeros(3, 2)), [0, 1, 0])
    Traceback (most recent call last):
    ...
    ValueError: Expected `shifted` to be {name: (Outputs, labels)} of shifted copies but got none; make copies of ...
    """

    keeps_predictions = needs_shifted = True
    centre: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    components: Tensor
    """(S, C): from standardised style to components of unit variance."""
    moments: Tensor
    """(2, 2): means and deviations of the two numbers on clean data."""
    slopes: Tensor
    """(6,): of 1, q₁, q₂, q₁²/3, q₁q₂/3 and q₂²/3."""

    def __init__(
        self,
        *,
        centre: Tensor,
        scale: Tensor,
        weight: Tensor,
        bias: Tensor,
        components: Tensor,
        moments: Tensor,
        slopes: Tensor,
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        size = len(centre)
        tensors = {"centre": centre, "scale": scale, "weight": weight, "bias": bias}
        shapes = {"centre": (size,), "scale": (size,), "weight": (2 * size,), "bias": ()}
        tensors |= {"components": components, "moments": moments, "slopes": slopes}
        shapes |= {"components": (size, components.shape[-1]), "moments": (2, 2), "slopes": (6,)}
        for name, tensor in tensors.items():
            if tensor.shape != shapes[name]:
                raise wrong(name, f"of shape {shapes[name]}", f"{tuple(tensor.shape)}", "pass the tensors of one fit")
        super().__init__(report, unchanged, **tensors)

    @classmethod
    def _fit(cls, data: FitData, *, reader: dict[str, Any] | None = None) -> list[Candidate]:
        assert data.conditions is not None
        best = optimal_temperature(data.loss)
        reader = _fit_reader(data.outputs, data.conditions) if reader is None else reader
        flat = torch.tensor([-best.log_temperature, 0, 0, 0, 0, 0], dtype=torch.float64)
        plain = cls(**reader, slopes=flat)
        simple = best.candidate(plain, "style was of no use")
        if reason := why_keep_temperature(data.loss):
            return [simple._replace(note=reason)]
        held = np.flatnonzero(_is_held(data.conditions))
        part = FitData(data.outputs.rows(torch.from_numpy(held)), data.labels[held], data.conditions[held])
        point, converged, iterations = _minimum(part, plain._terms(part.outputs).numpy(), flat.numpy())
        fitted = cls(**reader, slopes=torch.from_numpy(point))
        return [Candidate(fitted, converged, iterations + best.iterations, fold_options={"reader": reader}), simple]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        terms = self._terms(outputs)
        factor = (terms @ self.slopes.to(terms)).clamp(_LOWEST, _HIGHEST).exp()
        return factor.to(outputs.logits.dtype)[:, None] * outputs.logits

    def _terms(self, outputs: Outputs) -> Tensor:
        """(N, 6): 1, both numbers standardised and clipped, and their products."""
        numbers = _read_numbers(outputs, Contrast(self.centre, self.scale, self.weight, self.bias), self.components)
        mean, deviation = self.moments.to(numbers)
        q = ((numbers - mean) / deviation).clamp(-_CLIP, _CLIP)
        first, second = q.unbind(1)
        products = torch.stack([first * first, first * second, second * second], 1) / 3
        return torch.cat([torch.ones_like(q[:, :1]), q, products], 1)


def _read_numbers(outputs: Outputs, contrast: Contrast, components: Tensor) -> Tensor:
    """(N, 2): the log odds of clean style, and ln(1 + d²)."""
    z = contrast.standardise(outputs)
    distance = (z @ components.to(z)).square().sum(1)
    return torch.stack([contrast.log_odds(z), torch.log1p(distance)], 1)


def _is_held(conditions: Integers) -> NDArray[np.bool_]:
    """(N,): every second row, on which the slopes are fitted; the contrast is fitted to the others.

    Rows that a contrast was fitted to look more clearly clean or shifted than new ones do, and slopes fitted to them
    would be too small for new ones.
    """
    held = np.arange(len(conditions)) % 2 == 1
    return held if (held & (conditions == 0)).any() else np.ones(len(conditions), bool)


def _fit_reader(outputs: Outputs, conditions: Integers) -> dict[str, Any]:
    """What reads the two numbers from style: a contrast of clean rows (condition 0) with the shifted ones."""
    held, clean = torch.from_numpy(_is_held(conditions)), torch.from_numpy(conditions == 0)
    used = held if bool(held.all()) else ~held
    contrast = Contrast.fit(outputs.rows(used & clean), outputs.rows(used & ~clean))
    z = contrast.standardise(outputs.rows(used & clean))
    values, vectors = torch.linalg.eigh(z.T.cov(correction=0).reshape(z.shape[1], -1))
    values, vectors = values[-_COMPONENTS:], vectors[:, -_COMPONENTS:]
    components = (vectors / values.clamp_min(1e-12).sqrt())[:, values > 1e-6 * values[-1].clamp_min(1e-6)]
    numbers = _read_numbers(outputs.rows(held & clean), contrast, components)
    moments = torch.stack([numbers.mean(0), numbers.std(0, correction=0).clamp_min(1e-6)])
    return {**contrast._asdict(), "components": components, "moments": moments}


def _minimum(data: FitData, rows: Floats, start: Floats) -> tuple[Floats, bool, int]:
    """The slopes that minimise the weighted cross entropy of m · z; clean rows have half of the weight."""
    assert data.conditions is not None
    gaps = data.logits - data.logits.max(1, keepdims=True)
    label_gaps = gaps[np.arange(len(gaps)), data.labels]
    counts = np.bincount(data.conditions)
    shares = np.where(np.arange(len(counts)) == 0, 0.5, 0.5 / (len(counts) - 1)) / np.maximum(counts, 1)
    share = shares[data.conditions]
    penalised = np.arange(len(start)) > 0

    def moments(slopes: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        logs = rows @ slopes
        m = np.exp(np.clip(logs, _LOWEST, _HIGHEST))
        powers = np.exp(gaps * m[:, None])
        total = powers.sum(1)
        return m * ((logs > _LOWEST) & (logs < _HIGHEST)), np.log(total) - m * label_gaps, powers, total

    def objective(slopes: Floats) -> tuple[float, Floats]:
        inside, losses, powers, total = moments(slopes)
        slope = share * inside * ((powers * gaps).sum(1) / total - label_gaps)
        held = slopes * penalised
        return float(share @ losses + _PENALTY * held @ held), slope @ rows + 2 * _PENALTY * held

    inside, _, powers, total = moments(start)
    mean = (powers * gaps).sum(1) / total
    variance = (powers * np.square(gaps)).sum(1) / total - np.square(mean)
    hessian = (rows.T * (share * np.square(inside) * variance)) @ rows + 2 * _PENALTY * np.diag(penalised)
    found = descend(objective, start, cholesky_solver(hessian))
    return found.point, found.converged, found.iterations
