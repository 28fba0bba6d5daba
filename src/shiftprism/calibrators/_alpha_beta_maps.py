"""The fit of α-β: two ridged linear maps of an input, found from the best temperature."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from shiftprism._checks import Floats, Integers
from shiftprism.calibrators._descent import GAP, Descent, cholesky_solver, descend
from shiftprism.calibrators._scaled_loss import ScaledLoss
from shiftprism.calibrators._temperature import optimal_temperature, why_keep_temperature
from shiftprism.heads import SMALLEST_ALPHA, SMALLEST_NORM

RIDGES = tuple(10.0**exponent for exponent in range(2, -7, -1))
"""Weights of half the squared length of the two linear maps on standardised inputs, beside the mean NLL, the strongest
first; the one of the least NLL on a held-out fifth is taken. At 100 the maps are constant in effect, at 1e-6 free."""
_PATIENCE = 2
"""How many ridges in a row may be no better than the best before the search ends."""
OFF = -40.0
"""softplus of this is 4e-18: β is switched off."""
_CURVATURE_ROWS = 4000
"""How many rows the curvature at the start is estimated from: more would cost more time than they save."""


class Problem(NamedTuple):
    """What a fit of α-β sees: inputs of the maps (N, P), |f| (N,), raw logits (N, K), labels (N,)."""

    x: Floats
    norms: Floats
    raw: Floats
    labels: Integers

    def rows(self, index: NDArray[Any]) -> "Problem":
        """Some of the samples."""
        return Problem(*(field[index] for field in self))


class Maps(NamedTuple):
    """The two linear maps, weight (2, P) and offset (2,), with the fixed scale c."""

    weight: Floats
    offset: Floats
    scale: float
    converged: bool
    iterations: int
    kept_temperature: str = ""
    """Why the maps are constant, at the best temperature; empty where they were fitted."""
    ridge: float = 0.0

    def nll(self, problem: Problem) -> float:
        """Of the calibrated logits."""
        a, b = (problem.x @ self.weight.T + self.offset).T
        inverse = 1 / np.maximum(problem.norms, SMALLEST_NORM)
        m = self.scale * (1 + np.logaddexp(0, b) * inverse) / np.maximum(expit(a), SMALLEST_ALPHA)
        return ScaledLoss(problem.raw, problem.labels)(m)[0]


def fit_maps(problem: Problem, scale: float | None, seed: int) -> Maps:
    """Fit from the best temperature; keep it where data are too few, or where held-out data show no gain."""
    constant = constant_maps(problem, scale)
    if reason := why_keep_temperature(ScaledLoss(problem.raw, problem.labels)):
        return constant._replace(kept_temperature=reason)
    order = np.random.default_rng(seed).permutation(len(problem.x))
    held_out, rest = problem.rows(order[::5]), np.ones(len(order), bool)
    rest[order[::5]] = False
    part = problem.rows(rest)
    best = start = constant_maps(part, scale)
    least, iterations, worse = best.nll(held_out), 0, 0
    path = None
    for ridge in RIDGES:
        path = _fit_with_ridge(part, start, ridge, path, gap=1e-6)
        iterations += path.iterations
        loss = path.nll(held_out)
        best, least, worse = (path, loss, 0) if loss < least else (best, least, worse + 1)
        if (
            worse == _PATIENCE and best is not start
        ):  # strong ridges leave nearly the start: weaker ones may yet beat it
            break
    if best is start:
        return constant._replace(iterations=iterations, kept_temperature="α-β was no better on held-out data")
    final = _fit_with_ridge(problem, constant, best.ridge, best)
    return final._replace(iterations=iterations + final.iterations)


def constant_maps(problem: Problem, scale: float | None) -> Maps:
    """The best temperature of the raw logits as a member of the family: α = c T*, β off."""
    best = optimal_temperature(ScaledLoss(problem.raw, problem.labels))
    c = min(1.0, 1 / best.temperature) / 4 if scale is None else scale
    alpha = c * best.temperature
    # With c = 1 the family has no temperature above 1: α is at most sigmoid(40) = 1.
    offset = math.log(alpha / (1 - alpha)) if alpha < 1 - 1e-12 else -OFF
    weight = np.zeros((2, problem.x.shape[1]))
    return Maps(weight, np.array([offset, OFF]), c, best.converged, best.iterations)


def _fit_with_ridge(problem: Problem, constant: Maps, ridge: float, start: Maps | None, gap: float = GAP) -> Maps:
    """The maps of least NLL + ridge, from an earlier solution or (None) from the constant ones."""
    loss = _RidgedLoss(problem, constant.scale, ridge)
    found = Descent(loss.start(constant, start), math.inf, False, 0)
    for _ in range(8):  # the curvature changes along the way, so it is computed again every 40 steps
        solve = cholesky_solver(loss.curvature(found.point))
        part = descend(loss.value_and_gradient, found.point, solve, gap, most=40)
        found = part._replace(iterations=found.iterations + part.iterations)
        if found.converged:
            break
    weight, offset = loss.unstandardise(found.point)
    return Maps(weight, offset, constant.scale, found.converged, found.iterations, ridge=ridge)


class _RidgedLoss:
    """Mean NLL + ridge of the two maps on standardised inputs; θ is [weight, offset] (2, P + 1), flat."""

    def __init__(self, problem: Problem, scale: float, ridge: float) -> None:
        x = problem.x
        self.mean, deviation = x.mean(0), x.std(0)
        # a constant input stays 0 after centring: dividing rounding errors by their deviation would make noise of it
        self.deviation = np.where(deviation > 1e-12 * np.abs(x).max(), deviation, 1.0)
        z = (x - self.mean) / self.deviation
        # The ridge keeps the maps in the span of the samples: with more inputs than samples the search is done there.
        self.basis = np.linalg.svd(z, full_matrices=False)[2] if z.shape[1] > len(z) else np.eye(z.shape[1])
        z = z @ self.basis.T if z.shape[1] > len(z) else z
        self.z = np.concatenate([z, np.ones((len(x), 1))], 1)
        self.norms = np.maximum(problem.norms, SMALLEST_NORM)
        self.scale, self.ridge = scale, ridge
        self.loss = ScaledLoss(problem.raw, problem.labels)

    def start(self, constant: Maps, earlier: Maps | None) -> Floats:
        """θ of an earlier solution, or of the temperature with a small β."""
        theta = np.zeros((2, self.z.shape[1]))
        if earlier is None:
            # softplus is flat at OFF. β a tenth of the typical norm has a slope to move along, in either direction;
            # so has α with a logit of at most 4.
            beta = float(0.1 * np.median(self.norms))
            theta[:, -1] = min(float(constant.offset[0]), 4.0), math.log(math.expm1(min(beta, 30.0)))
        else:
            theta[:, :-1] = earlier.weight * self.deviation @ self.basis.T
            theta[:, -1] = earlier.offset + earlier.weight @ self.mean
        return theta.ravel()

    def unstandardise(self, theta: Floats) -> tuple[Floats, Floats]:
        """Weight (2, P) and offset (2,) for the inputs as they are."""
        both = theta.reshape(2, -1)
        weight = both[:, :-1] @ self.basis / self.deviation
        return weight, both[:, -1] - weight @ self.mean

    def _multipliers(self, theta: Floats) -> tuple[Floats, Floats]:
        """m = c (1 + β/|f|)/α, (N,), and ∂ ln m / ∂(a, b), (2, N)."""
        a, b = (self.z @ theta.reshape(2, -1).T).T
        inverse = 1 / self.norms
        alpha, beta = expit(a), np.logaddexp(0, b)
        m = self.scale * (1 + beta * inverse) / np.maximum(alpha, SMALLEST_ALPHA)
        by = np.stack([(alpha - 1) * (alpha > SMALLEST_ALPHA), inverse * expit(b) / (1 + beta * inverse)])
        return m, by

    def value_and_gradient(self, theta: Floats) -> tuple[float, Floats]:
        """The ridged loss and its gradient."""
        m, by = self._multipliers(theta)
        loss, means, _ = self.loss(m, moments=1)
        slope = means - self.loss.label_gaps
        weight = theta.reshape(2, -1)[:, :-1]
        gradient = (by * (slope * m)) @ self.z / len(m)
        gradient[:, :-1] += self.ridge * weight
        return loss + self.ridge / 2 * float((weight * weight).sum()), gradient.ravel()

    def curvature(self, theta: Floats) -> Floats:
        """Gauss-Newton: Σ m² L'' (∂ ln m)(∂ ln m)ᵀ ⊗ z zᵀ / N with the ridge, (2 (P + 1))²."""
        m, by = self._multipliers(theta)
        bend = m * m * self.loss(m, moments=2)[2]
        step = max(1, len(self.z) // max(_CURVATURE_ROWS, 4 * self.z.shape[1]))
        z, by, bend = self.z[::step], by[:, ::step], bend[::step]
        width = z.shape[1]
        both = np.concatenate([z * by[0][:, None], z * by[1][:, None]], 1)
        ridge = np.full(2 * width, self.ridge)
        ridge[[width - 1, -1]] = 1e-9  # the offsets have no ridge, but the matrix must be positive definite
        return np.asarray((both * bend[:, None]).T @ both / len(z) + np.diag(ridge))
