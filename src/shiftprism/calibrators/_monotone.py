"""An order-preserving calibrator with more capacity than α-β: a rising function of the gaps, its slopes by input."""

import math

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._descent import GAP, Descent, cholesky_solver, descend
from shiftprism.calibrators._scaled_loss import cache_slices
from shiftprism.calibrators._temperature import check_temperature, optimal_temperature, why_keep_temperature
from shiftprism.outputs import Outputs

_KNOTS = (1.0, 2.0, 4.0)
"""Where the slope may change, in gaps of T*: odds of e, e² and e⁴ at the best temperature."""
_SEGMENTS = tuple(zip((0.0, *_KNOTS), (*_KNOTS, math.inf), strict=True))
"""(near, far) end of each piece of a gap."""
_GAPS = 10
"""How many of the largest gaps the slopes depend on."""
_RIDGES = (1e-1, 1e-2, 1e-3)
_STEEPEST = 8.0
"""|ln slope| about the temperature's stays below this, so that no input far from the fit set overflows."""


class Monotone(Calibrator):
    """Σ_j s_j(x) φ_j(z − max z), four slopes s_j(x) > 0 that depend on the largest gaps (after Rahimi et al. 2020).

    φ_j is the part of the gap between two knots, s_j(x) = exp(w_j·x + o_j), and x = ln(1 + gap/T*) of the second to the
    eleventh largest logit: no class is special, and only logits are read. Every slope is positive, so the order of all
    classes is kept. Equal slopes are a temperature, equal slopes that depend on x one multiplier an input as in α-β;
    different ones bend near and far logits apart. A diagonal, order-invariant member of the family of Rahimi et al.

    `fit` minimises the ridged cross entropy; the ridge is chosen on a held-out fifth, which `seed` draws.

    >>> outputs = Outputs.from_logits(torch.randn(200, 4) * 5)
    >>> fitted = Monotone.fit(outputs, torch.arange(200) % 4)
    >>> torch.equal(fitted(outputs).argmax(1), outputs.predictions)
    True
    """

    keeps_predictions = includes_temperature = probabilities_suffice = True
    weight: Tensor
    offset: Tensor
    temperature: Tensor

    def __init__(
        self,
        weight: Tensor,
        offset: Tensor,
        temperature: float | Tensor = 1.0,
        *,
        unchanged: bool | Tensor = False,
        report: Report = UNFITTED,
    ) -> None:
        """`weight` (4, P) and `offset` (4,) give ln (s_j T*) for P gaps; zeros are the temperature."""
        segments = len(_SEGMENTS)
        if weight.ndim != 2 or len(weight) != segments or offset.shape != (segments,):
            got = f"shapes {tuple(weight.shape)} and {tuple(offset.shape)}"
            raise wrong("weight", f"of shape ({segments}, P), with an offset ({segments},)", got, "one row a segment")
        number = check_temperature(float(temperature))
        super().__init__(report, unchanged, weight=weight, offset=offset, temperature=number)

    @classmethod
    def _fit(cls, data: FitData, *, seed: int = 0) -> list[Candidate]:
        best = optimal_temperature(data.loss)
        zeros = torch.zeros(len(_SEGMENTS), min(_GAPS, data.outputs.K - 1)), torch.zeros(len(_SEGMENTS))
        scaled = cls(*zeros, best.temperature)
        if reason := why_keep_temperature(data.loss):
            return [best.candidate(scaled, reason)]
        found, iterations = _search(data.loss.gaps / best.temperature, data.labels, seed)
        best = best._replace(iterations=best.iterations + iterations)
        if found is None:
            return [best.candidate(scaled, "slopes by input were no better on held-out data")]
        theta = torch.from_numpy(found.point.reshape(len(_SEGMENTS), -1))
        fitted = cls(theta[:, :-1], theta[:, -1], best.temperature)
        return [Candidate(fitted, found.converged, best.iterations), best.candidate(scaled)]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        z, used = outputs.logits, self.weight.shape[1]
        if used != outputs.K - 1 and not _GAPS <= used < outputs.K:
            raise wrong("outputs", f"of {used + 1} classes", outputs.K, "this calibrator was fitted to another model")
        gaps = (z - z.amax(1, keepdim=True)) / self.temperature.to(z.dtype)
        x = torch.log1p(-torch.topk(gaps, used + 1, 1).values[:, 1:])
        logs = torch.nn.functional.linear(x, self.weight.to(z.dtype), self.offset.to(z.dtype))
        slopes = logs.clamp(-_STEEPEST, _STEEPEST).exp()
        result = torch.zeros_like(gaps)
        for number, (near, far) in enumerate(_SEGMENTS):
            result = result + slopes[:, number : number + 1] * (gaps.clamp(-far, -near) + near)
        return result


def _search(gaps: Floats, labels: Integers, seed: int) -> tuple[Descent | None, int]:
    """θ at the ridge of the least NLL on a held-out fifth (None: constant slopes were no worse), and all iterations."""
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, rest = order[::5], np.setdiff1d(order, order[::5])
    part, witness = _SlopeLoss(gaps[rest], labels[rest]), _SlopeLoss(gaps[held_out], labels[held_out])
    point = part.start
    # The strongest ridge first: its solution is near the start, and each solution starts the next search.
    least, best, start, iterations = witness(point, 0.0)[0], 0.0, point, 0
    for ridge in _RIDGES:
        path = part.minimum(ridge, point, 1e-6)
        point, iterations = path.point, iterations + path.iterations
        loss = witness(point, 0.0)[0]
        if loss < least:
            least, best, start = loss, ridge, point
    if not best:
        return None, iterations
    found = _SlopeLoss(gaps, labels).minimum(best, start)
    return found, iterations + found.iterations


class _SlopeLoss:
    """Ridged loss, gradient and Gauss-Newton curvature in θ = [w, o] (4, P + 1), flat."""

    def __init__(self, gaps: Floats, labels: Integers) -> None:
        used = min(_GAPS, gaps.shape[1] - 1)
        # the gap of the largest logit itself is 0 and says nothing
        largest = -np.sort(np.partition(-gaps, used, 1)[:, : used + 1], 1)[:, 1:]
        self.x = np.concatenate([np.log1p(-largest), np.ones((len(gaps), 1))], 1)
        self.gaps, self.labels = gaps, labels
        self.start = np.zeros(len(_SEGMENTS) * (used + 1))

    def __call__(self, theta: Floats, ridge: float, curved: bool = False) -> tuple[float, Floats, Floats]:
        segments, width = len(_SEGMENTS), self.x.shape[1]
        gradient = np.zeros((segments, width))
        hessian = np.zeros((segments, width, segments, width)) if curved else np.zeros(0)
        loss = 0.0
        for part in cache_slices(*self.gaps.shape):
            x, gaps, labels = self.x[part], self.gaps[part], self.labels[part]
            rows = np.arange(len(x))
            logs = x @ theta.reshape(segments, width).T
            # Beyond its bound a slope has no derivative, and the search takes it for 0; `fit` judges the result anyway.
            slopes = np.exp(np.clip(logs, -_STEEPEST, _STEEPEST)) * (np.abs(logs) < _STEEPEST)
            pieces = [np.clip(gaps, -far, -near) + near for near, far in _SEGMENTS]
            p = sum(slope[:, None] * piece for slope, piece in zip(slopes.T, pieces, strict=True))
            label_logits = p[rows, labels]
            np.exp(p, out=p)
            total = np.einsum("nk->n", p)
            loss += float((np.log(total) - label_logits).sum())
            p /= total[:, None]
            means = np.stack([np.einsum("nk,nk->n", p, piece) for piece in pieces])
            at_label = np.stack([piece[rows, labels] for piece in pieces])
            gradient += ((means - at_label) * slopes.T) @ x
            if curved:
                hessian += _curvature(x, p, pieces, means, slopes)
        samples = len(self.x)
        value = loss / samples + ridge / 2 * float(theta @ theta)
        return value, gradient.ravel() / samples + ridge * theta, hessian.reshape(-1, len(theta)) / samples

    def minimum(self, ridge: float, start: Floats, gap: float = GAP) -> Descent:
        """From `start`, with the curvature there."""
        hessian = self(start, ridge, curved=True)[2] + ridge * np.eye(len(start))
        return descend(lambda theta: self(theta, ridge)[:2], start, cholesky_solver(hessian), gap)


def _curvature(x: Floats, p: Floats, pieces: list[Floats], means: Floats, slopes: Floats) -> Floats:
    """Σ_n s_i s_j Cov_p[φ_i, φ_j] x xᵀ for each pair of segments, (4, P + 1, 4, P + 1)."""
    segments, width = len(pieces), x.shape[1]
    result = np.empty((segments, width, segments, width))
    for i in range(segments):
        for j in range(i, segments):
            covariance = np.einsum("nk,nk,nk->n", p, pieces[i], pieces[j]) - means[i] * means[j]
            result[i, :, j] = (x * (covariance * slopes[:, i] * slopes[:, j])[:, None]).T @ x
            result[j, :, i] = result[i, :, j].T
    return result
