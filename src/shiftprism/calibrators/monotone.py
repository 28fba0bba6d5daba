"""An order-preserving calibrator with more capacity than α-β: a rising function of the gaps, its slopes by input."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._calibrator import FEWEST, UNFITTED, Calibrator, Report, fit_data, mean_nll
from shiftprism.calibrators._descent import GAP, Descent, descend, factored
from shiftprism.calibrators.temperature import Optimum, optimal_temperature
from shiftprism.outputs import Outputs

_KNOTS = (1.0, 2.0, 4.0)
"""Where the slope may change, in gaps of T*: odds of e, e² and e⁴ at the best temperature."""
_LOOKS = 10
"""How many of the largest gaps the slopes depend on."""
_RIDGES = (1e-1, 1e-2, 1e-3)
_STEEPEST = 8.0
"""|ln slope| about the temperature's stays below this, so that no input far from the fit set overflows."""
_AT_ONCE = 1 << 16


class Monotone(Calibrator):
    """Σ_j s_j(x) φ_j(z_k − max z), φ_j the part of the gap between two knots, s_j(x) = exp(w_j·x + o_j) > 0.

    x = ln(1 + gap/T*) of the second to the eleventh largest logit: no class is special, and only logits are read. Every
    slope is positive, so the order of all classes is kept. Equal slopes are a temperature, equal slopes that depend on
    x one multiplier an input as in α-β; different ones bend near and far logits apart. A diagonal, order-invariant
    member of the family of Rahimi et al. 2020.

    >>> outputs = Outputs.from_logits(torch.randn(200, 4) * 5)
    >>> fitted = Monotone.fit(outputs, torch.arange(200) % 4)
    >>> torch.equal(fitted(outputs).argmax(1), outputs.predictions)
    True
    """

    weight: Tensor
    offset: Tensor
    temperature: Tensor

    def __init__(
        self, weight: Tensor, offset: Tensor, temperature: float | Tensor = 1.0, report: Report = UNFITTED
    ) -> None:
        """`weight` (4, P) and `offset` (4,) give ln (s_j T*) for P gaps; zeros are the temperature."""
        super().__init__()
        segments = len(_KNOTS) + 1
        if weight.ndim != 2 or len(weight) != segments or offset.shape != (segments,):
            got = f"shapes {tuple(weight.shape)} and {tuple(offset.shape)}"
            raise wrong("weight", f"of shape ({segments}, P), with an offset ({segments},)", got, "one row a segment")
        if not 0 < float(temperature) < math.inf:
            raise wrong("temperature", "positive and finite", float(temperature), "1.0 leaves the logits as they are")
        self._hold(report, weight=weight, offset=offset, temperature=torch.tensor(float(temperature)))

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        seed: int = 0,
    ) -> "Monotone":
        """The least ridged cross entropy, the ridge by a held-out fifth; the temperature where that is no worse."""
        data = fit_data(outputs, labels, logits, probabilities)
        best = optimal_temperature(data.logits, data.labels)
        gaps = np.asarray((data.logits - data.logits.max(1, keepdims=True)) / best.temperature)
        found = _fitted(gaps, data.labels, best, seed)
        report = Report(found.converged, best.iterations + found.iterations, best.before, best.after, found.note)
        fitted = cls(torch.from_numpy(found.weight), torch.from_numpy(found.offset), best.temperature, report)
        after = mean_nll(fitted(data.outputs).numpy(), data.labels)
        if not found.note and after > best.after:
            flat = 0 * fitted.weight, 0 * fitted.offset
            return cls(*flat, best.temperature, report._replace(note="kept the temperature"))
        fitted.report = report._replace(nll_after=after if not found.note else best.after)
        return fitted

    def forward(self, outputs: Outputs) -> Tensor:
        z = outputs.logits
        gaps = (z - z.amax(1, keepdim=True)) / self.temperature.to(z.dtype)
        looks = self.weight.shape[1]
        if looks > outputs.K - 1 or (looks < _LOOKS and looks != outputs.K - 1):
            raise wrong("outputs", f"of {looks + 1} classes", outputs.K, "this calibrator was fitted to another model")
        x = torch.log1p(-torch.topk(gaps, looks + 1, 1).values[:, 1:])
        slopes = torch.nn.functional.linear(x, self.weight.to(z.dtype), self.offset.to(z.dtype))
        slopes = slopes.clamp(-_STEEPEST, _STEEPEST).exp()
        result = torch.zeros_like(gaps)
        for number, (near, far) in enumerate(_segments()):
            result = result + slopes[:, number : number + 1] * (gaps.clamp(-far, -near) + near)
        return result


def _segments() -> list[tuple[float, float]]:
    return list(zip((0.0, *_KNOTS), (*_KNOTS, math.inf), strict=True))


class _Found(NamedTuple):
    weight: Floats
    offset: Floats
    converged: bool
    iterations: int
    note: str = ""


def _fitted(gaps: Floats, labels: Integers, best: Optimum, seed: int) -> _Found:
    looks = min(_LOOKS, gaps.shape[1] - 1)
    zero = _Found(np.zeros((len(_KNOTS) + 1, looks)), np.zeros(len(_KNOTS) + 1), best.converged, 0)
    if best.note.startswith("every prediction was right"):
        return zero._replace(note=f"kept the temperature: {best.note}")
    if len(labels) < FEWEST or looks == 0:
        return zero._replace(note=f"kept the temperature: fewer than {FEWEST} samples")
    order = np.random.default_rng(seed).permutation(len(labels))
    held, kept = order[::5], np.setdiff1d(order, order[::5])
    part, rest = _Curve(gaps[kept], labels[kept], looks), _Curve(gaps[held], labels[held], looks)
    point = part.start
    least, chosen, where, spent = rest(point, 0.0)[0], 0.0, point, 0
    for ridge in _RIDGES:
        trial = part.minimum(ridge, point, 1e-6)
        point, spent = trial.point, spent + trial.iterations
        loss = rest(point, 0.0)[0]
        if loss < least:
            least, chosen, where = loss, ridge, point
    if not chosen:
        note = "kept the temperature: slopes by input were no better on held-out data"
        return zero._replace(iterations=spent, note=note)
    found = _Curve(gaps, labels, looks).minimum(chosen, where)
    theta = found.point.reshape(-1, looks + 1)
    return _Found(theta[:, :looks], theta[:, looks], found.converged, spent + found.iterations)


class _Curve:
    """Ridged loss, gradient and Gauss-Newton curvature in θ (4, P + 1), flat."""

    def __init__(self, gaps: Floats, labels: Integers, looks: int) -> None:
        top = -np.sort(np.partition(-gaps, looks, 1)[:, : looks + 1], 1)[:, 1:]
        self.x = np.concatenate([np.log1p(-top), np.ones((len(gaps), 1))], 1)
        self.gaps, self.labels = gaps, labels
        self.start = np.zeros((len(_KNOTS) + 1) * (looks + 1))
        self._rows = max(1, _AT_ONCE // gaps.shape[1])

    def __call__(self, theta: Floats, ridge: float, curved: bool = False) -> tuple[float, Floats, Floats]:
        segments, width = len(_KNOTS) + 1, self.x.shape[1]
        gradient = np.zeros((segments, width))
        hessian = np.zeros((segments, width, segments, width)) if curved else np.zeros(0)
        loss = 0.0
        for begin in range(0, len(self.x), self._rows):
            x, gaps = self.x[begin : begin + self._rows], self.gaps[begin : begin + self._rows]
            rows, labels = np.arange(len(x)), self.labels[begin : begin + self._rows]
            logs = x @ theta.reshape(segments, width).T
            slopes = np.exp(np.clip(logs, -_STEEPEST, _STEEPEST)) * (np.abs(logs) < _STEEPEST)
            pieces = [np.clip(gaps, -far, -near) + near for near, far in _segments()]
            p = sum(slope[:, None] * piece for slope, piece in zip(slopes.T, pieces, strict=True))
            picked = p[rows, labels]
            np.exp(p, out=p)
            total = np.einsum("nk->n", p)
            loss += float((np.log(total) - picked).sum())
            p /= total[:, None]
            means = np.stack([np.einsum("nk,nk->n", p, piece) for piece in pieces])
            hit = np.stack([piece[rows, labels] for piece in pieces])
            gradient += ((means - hit) * slopes.T) @ x
            for i in range(segments if curved else 0):
                for j in range(i, segments):
                    spread = np.einsum("nk,nk,nk->n", p, pieces[i], pieces[j]) - means[i] * means[j]
                    block = (x * (spread * slopes[:, i] * slopes[:, j])[:, None]).T @ x
                    hessian[i, :, j] += block
                    if i != j:
                        hessian[j, :, i] += block.T
        samples = len(self.x)
        whole = loss / samples + ridge / 2 * float(theta @ theta)
        return whole, gradient.ravel() / samples + ridge * theta, hessian.reshape(-1, len(theta)) / samples

    def minimum(self, ridge: float, start: Floats, gap: float = GAP) -> Descent:
        """From `start`, with the curvature there."""
        hessian = self(start, ridge, curved=True)[2] + ridge * np.eye(len(start))
        return descend(lambda theta: self(theta, ridge)[:2], start, factored(hessian), gap)
