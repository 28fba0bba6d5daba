"""A temperature that reads style and features: fitted to clean data and to shifted copies of it."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._descent import cholesky_solver, descend
from shiftprism.calibrators._temperature import optimal_temperature, why_keep_temperature
from shiftprism.outputs import Outputs, read_fields

_STYLE, _FEATURES = 20, 32
"""The most principal components of clean style and of features in a distance; chosen as docs/style.md says."""
_ROWS = 20
"""Clean rows for each component: with fewer, rows of the fit are nearer than new ones."""
_FAR = 8.0
"""z-scores stay within ± this: far outside the usual range says no more than outside."""
_CLIP = 6.0
"""The standardised distances stay within ± this."""
_LOWEST, _HIGHEST = -6.0, 3.0
"""The limits of ln m: confidence is lowered and raised by no more than a factor e⁻⁶ to e³ of the logits."""
_PENALTY = 1e-3
"""Of the squared weights, beside a mean loss."""
_CLEAN = 0.5
"""The weight of clean rows; the shifted sets share the rest."""


class ShiftAware(Calibrator):
    """m(x) · z with ln m quadratic in two distances from clean data, of style and of features: softer where it is far.

    A distance is ln(1 + d²), d² the sum of squares of the first principal components of clean data, each scaled to unit
    variance. Every class has the same factor m(x) > 0, so no prediction changes. `fit(outputs, labels, shifted={name:
    (outputs, labels), …})` takes components from clean data alone and slopes from both: clean data have half of the
    weight, and the named sets equal shares of the other half. Keys may be corruptions or families.

    >>> ShiftAware.fit(Outputs.from_logits(torch.zeros(3, 2)), [0, 1, 0])
    Traceback (most recent call last):
    ...
    ValueError: Expected `shifted` to be {name: (Outputs, labels)} of shifted copies but got none; make copies of ...
    """

    keeps_predictions = needs_shifted = True
    style_centre: Tensor
    style_components: Tensor
    """(S, C): from style, scaled by `style_scale`, to components of unit variance."""
    style_scale: Tensor
    feature_centre: Tensor
    feature_scale: Tensor
    feature_components: Tensor
    """(D, C′)."""
    moments: Tensor
    """(2, 2): means and deviations of the two distances on clean data."""
    slopes: Tensor
    """(6,): of 1, q₁, q₂, q₁²/3, q₁q₂/3 and q₂²/3."""

    def __init__(
        self,
        *,
        style_centre: Tensor,
        style_scale: Tensor,
        style_components: Tensor,
        feature_centre: Tensor,
        feature_scale: Tensor,
        feature_components: Tensor,
        moments: Tensor,
        slopes: Tensor,
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        tensors = {"style_centre": style_centre, "style_scale": style_scale, "style_components": style_components}
        tensors |= {"feature_centre": feature_centre, "feature_scale": feature_scale}
        tensors |= {"feature_components": feature_components, "moments": moments, "slopes": slopes}
        shapes: dict[str, tuple[int, ...]] = {"moments": (2, 2), "slopes": (6,)}
        for name in ("style", "feature"):
            size = len(tensors[f"{name}_centre"])
            shapes |= {f"{name}_centre": (size,), f"{name}_scale": (size,)}
            shapes[f"{name}_components"] = (size, tensors[f"{name}_components"].shape[-1])
        for name, tensor in tensors.items():
            if tensor.shape != shapes[name]:
                raise wrong(name, f"of shape {shapes[name]}", f"{tuple(tensor.shape)}", "pass the tensors of one fit")
        super().__init__(report, unchanged, **tensors)

    @classmethod
    def _fit(cls, data: FitData, *, reader: dict[str, Any] | None = None) -> list[Candidate]:
        assert data.conditions is not None
        best = optimal_temperature(data.loss)
        reader = _fit_reader(data.outputs.rows(torch.from_numpy(data.conditions == 0))) if reader is None else reader
        flat = torch.tensor([-best.log_temperature, 0, 0, 0, 0, 0], dtype=torch.float64)
        plain = cls(**reader, slopes=flat)
        simple = best.candidate(plain, "the distances were of no use")
        if reason := why_keep_temperature(data.loss):
            return [simple._replace(note=reason)]
        point, converged, iterations = _minimum(data, plain._terms(data.outputs).numpy(), flat.numpy())
        fitted = cls(**reader, slopes=torch.from_numpy(point))
        return [Candidate(fitted, converged, iterations + best.iterations, fold_options={"reader": reader}), simple]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        terms = self._terms(outputs)
        factor = (terms @ self.slopes.to(terms)).clamp(_LOWEST, _HIGHEST).exp()
        return factor.to(outputs.logits.dtype)[:, None] * outputs.logits

    def _terms(self, outputs: Outputs) -> Tensor:
        """(N, 6): 1, both distances standardised and clipped, and their products."""
        distances = _read_distances(
            outputs,
            _Space(self.style_centre, self.style_scale, self.style_components),
            _Space(self.feature_centre, self.feature_scale, self.feature_components),
        )
        mean, deviation = self.moments.to(distances)
        q = ((distances - mean) / deviation).clamp(-_CLIP, _CLIP)
        first, second = q.unbind(1)
        products = torch.stack([first * first, first * second, second * second], 1) / 3
        return torch.cat([torch.ones_like(q[:, :1]), q, products], 1)


class _Space(NamedTuple):
    """The first principal components of clean data, in which a distance from it is taken."""

    centre: Tensor
    scale: Tensor
    components: Tensor

    @staticmethod
    def fit(values: Tensor, most: int) -> "_Space":
        centre, spread = values.mean(0), values.std(0, correction=0)
        # what never varies, such as the chroma of grey images, counts for nothing
        scale = torch.where(spread > 1e-6 * centre.abs().clamp_min(1e-3), spread, torch.inf)
        z = ((values - centre) / scale).clamp(-_FAR, _FAR)
        variances, vectors = torch.linalg.eigh(z.T.cov(correction=0).reshape(z.shape[1], -1))
        count = min(most, max(1, len(values) // _ROWS))
        variances, vectors = variances[-count:], vectors[:, -count:]
        varies = variances > 1e-6 * variances[-1].clamp_min(1e-6)
        return _Space(centre, scale, (vectors / variances.clamp_min(1e-12).sqrt())[:, varies])

    def distance(self, values: Tensor) -> Tensor:
        """(N,): ln(1 + d²)."""
        if values.shape[1] != len(self.centre):
            got = f"{values.shape[1]} columns"
            raise wrong(
                "outputs", f"of {len(self.centre)} columns of style or features", got, "pass those of its model"
            )
        z = ((values - self.centre.to(values)) / self.scale.to(values)).clamp(-_FAR, _FAR)
        return torch.log1p((z @ self.components.to(values)).square().sum(1))


def _read_distances(outputs: Outputs, style: _Space, features: _Space) -> Tensor:
    """(N, 2): of style and of features, in float32 or wider."""
    fields = read_fields(outputs, "style", "features")
    values = [field.to(torch.promote_types(field.dtype, torch.float32)) for field in fields]
    return torch.stack([space.distance(own) for space, own in zip((style, features), values, strict=True)], 1)


def _fit_reader(clean: Outputs) -> dict[str, Any]:
    """What reads the two distances from Outputs, fitted to clean rows."""
    style, features = read_fields(clean, "style", "features")
    spaces = {"style": _Space.fit(style, _STYLE), "feature": _Space.fit(features, _FEATURES)}
    distances = _read_distances(clean, spaces["style"], spaces["feature"])
    moments = torch.stack([distances.mean(0), distances.std(0, correction=0).clamp_min(1e-6)])
    tensors = {f"{name}_{part}": tensor for name, space in spaces.items() for part, tensor in space._asdict().items()}
    return {**tensors, "moments": moments}


def _minimum(data: FitData, rows: Floats, start: Floats) -> tuple[Floats, bool, int]:
    """The slopes that minimise the weighted cross entropy of m · z; clean rows have half of the weight."""
    assert data.conditions is not None
    gaps = data.logits - data.logits.max(1, keepdims=True)
    label_gaps = gaps[np.arange(len(gaps)), data.labels]
    counts = np.bincount(data.conditions)
    shares = np.where(np.arange(len(counts)) == 0, _CLEAN, (1 - _CLEAN) / (len(counts) - 1)) / np.maximum(counts, 1)
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
