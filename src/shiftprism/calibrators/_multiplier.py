"""One positive multiplier m for all logits of an input: the losses, and the fit of α-β."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from shiftprism._checks import Floats, Integers
from shiftprism.calibrators._calibrator import FEWEST
from shiftprism.calibrators._descent import GAP, descend, factored
from shiftprism.calibrators.temperature import optimal_temperature, separable
from shiftprism.heads import SMALLEST_ALPHA, SMALLEST_NORM

RIDGES = (1e-1, 1e-2, 1e-3)
"""Weights of half the squared length of the two linear maps on standardised inputs, beside the mean NLL, the strongest
first; the one of the least NLL on a held-out fifth is taken."""
OFF = -40.0
"""softplus of this is 4e-18: β is switched off."""
_AT_ONCE = 1 << 16
_CURVED = 4000
"""Rows that the curvature at the start is taken from; more would cost more than they tell."""


class Scaled:
    """The NLL of m_n · raw_n as a function of the multipliers m (N,), each sample by itself."""

    def __init__(self, raw: Floats, labels: Integers) -> None:
        self.raw = raw - raw.max(1, keepdims=True)
        self.picked = self.raw[np.arange(len(raw)), labels]
        self._rows = max(1, _AT_ONCE // raw.shape[1])
        self._buffer = np.empty((self._rows, raw.shape[1]))

    def __call__(self, m: Floats, curved: bool = False) -> tuple[float, Floats, Floats]:
        """Mean loss, and for each sample the derivative by m, E_p[raw] − raw_y, and if asked the second, Var_p[raw]."""
        slope, curvature = np.empty(len(m)), np.empty(len(m) if curved else 0)
        loss = 0.0
        for begin in range(0, len(m), self._rows):
            part = slice(begin, begin + self._rows)
            raw = self.raw[part]
            p = np.multiply(raw, m[part, None], out=self._buffer[: len(raw)])
            np.exp(p, out=p)
            total = np.einsum("nk->n", p)
            loss += float(np.log(total).sum())
            mean = np.einsum("nk,nk->n", p, raw) / total
            slope[part] = mean - self.picked[part]
            if curved:
                np.multiply(p, raw, out=p)
                curvature[part] = np.einsum("nk,nk->n", p, raw) / total - mean * mean
        return (loss - float(m @ self.picked)) / len(m), slope, curvature


class Problem(NamedTuple):
    """What a fit of α-β sees: inputs of the maps (N, P), |f| (N,), raw logits (N, K), labels (N,)."""

    x: Floats
    norms: Floats
    raw: Floats
    labels: Integers

    def rows(self, index: NDArray[Any]) -> "Problem":
        """Some of the samples."""
        return Problem(*(field[index] for field in self))


class Solution(NamedTuple):
    """The two linear maps, weight (2, P) and offset (2,), with the fixed scale c."""

    weight: Floats
    offset: Floats
    scale: float
    converged: bool
    iterations: int
    note: str = ""
    ridge: float = 0.0

    def nll(self, problem: Problem) -> float:
        """Of the calibrated logits."""
        a, b = (problem.x @ self.weight.T + self.offset).T
        inverse = 1 / np.maximum(problem.norms, SMALLEST_NORM)
        m = self.scale * (1 + np.logaddexp(0, b) * inverse) / np.maximum(expit(a), SMALLEST_ALPHA)
        return Scaled(problem.raw, problem.labels)(m)[0]


def fit_maps(problem: Problem, scale: float | None, seed: int) -> Solution:
    """From the best temperature; kept at it where there are too few data or held-out ones do not ask for more."""
    whole = constant(problem, scale)
    if len(problem.x) < FEWEST:
        return whole._replace(note=f"kept the temperature: fewer than {FEWEST} samples")
    if separable(problem.raw, problem.labels):
        return whole._replace(note="kept the temperature: every prediction was right, so α-β has no optimum")
    order = np.random.default_rng(seed).permutation(len(problem.x))
    held, kept = problem.rows(order[::5]), np.ones(len(order), bool)
    kept[order[::5]] = False
    part = problem.rows(kept)
    base = constant(part, scale)
    best, least, spent = base, base.nll(held), 0
    trial = None
    for ridge in RIDGES:
        trial = maps(part, base, ridge, trial, gap=1e-6)
        spent += trial.iterations
        found = trial.nll(held)
        best, least = (trial, found) if found < least else (best, least)
    if best is base:
        note = "kept the temperature: α-β was no better on held-out data"
        return whole._replace(iterations=spent, note=note)
    final = maps(problem, whole, best.ridge, start=best)
    return final._replace(iterations=spent + final.iterations)


def constant(problem: Problem, scale: float | None) -> Solution:
    """The temperature optimum of the raw logits as a member of the family: α = c T*, β off."""
    best = optimal_temperature(problem.raw, problem.labels)
    c = min(1.0, 1 / best.temperature) / 4 if scale is None else scale
    alpha = c * best.temperature
    # With c = 1 the family has no temperature above 1: it ends where α does.
    offset = math.log(alpha / (1 - alpha)) if alpha < 1 - 1e-12 else -OFF
    weight = np.zeros((2, problem.x.shape[1]))
    return Solution(weight, np.array([offset, OFF]), c, best.converged, best.iterations)


def maps(problem: Problem, base: Solution, ridge: float, start: Solution | None = None, gap: float = GAP) -> Solution:
    """L-BFGS on standardised inputs, from the temperature (β small but with a slope) or from an earlier solution."""
    samples, size = problem.x.shape
    mean, spread = problem.x.mean(0), problem.x.std(0)
    spread = np.where(spread > 1e-12 * np.abs(problem.x).max(), spread, 1.0)
    z = np.concatenate([(problem.x - mean) / spread, np.ones((samples, 1))], 1)
    inverse = 1 / np.maximum(problem.norms, SMALLEST_NORM)
    loss_of = Scaled(problem.raw, problem.labels)

    def multipliers(theta: Floats) -> tuple[Floats, Floats, Floats]:
        """m (N,) and d ln m / d(a, b), (2, N)."""
        a, b = (z @ theta.reshape(2, size + 1).T).T
        alpha, beta = expit(a), np.logaddexp(0, b)
        m = base.scale * (1 + beta * inverse) / np.maximum(alpha, SMALLEST_ALPHA)
        by = np.stack([(alpha - 1) * (alpha > SMALLEST_ALPHA), inverse * expit(b) / (1 + beta * inverse)])
        return m, by, theta.reshape(2, size + 1)[:, :size]

    def objective(theta: Floats) -> tuple[float, Floats]:
        m, by, linear = multipliers(theta)
        loss, slope, _ = loss_of(m)
        gradient = (by * (slope * m)) @ z / samples
        gradient[:, :size] += ridge * linear
        return loss + ridge / 2 * float((linear * linear).sum()), gradient.ravel()

    first = np.zeros((2, size + 1))
    if start is None:
        # a tenth of the typical norm: enough for β to have a slope to move along, in either direction
        tenth = float(0.1 * max(np.median(problem.norms), SMALLEST_NORM))
        first[:, size] = min(float(base.offset[0]), 4.0), math.log(math.expm1(min(tenth, 30.0)))
    else:
        first[:, :size] = start.weight * spread
        first[:, size] = start.offset + start.weight @ mean
    point, steps, converged = first.ravel(), 0, False
    for _ in range(8):  # the curvature changes along the way: it is taken anew where the search has got to
        m, by, _ = multipliers(point)
        bend = m * m * loss_of(m, curved=True)[2]
        found = descend(objective, point, factored(_gauss_newton(z, by, bend, ridge)), gap, most=40)
        point, converged, steps = found.point, found.converged, steps + found.iterations
        if converged:
            break
    both = point.reshape(2, size + 1)
    weight = both[:, :size] / spread
    return Solution(weight, both[:, size] - weight @ mean, base.scale, converged, steps, ridge=ridge)


def _gauss_newton(z: Floats, by: Floats, bend: Floats, ridge: float) -> Floats:
    """Σ bend (∂ ln m)(∂ ln m)ᵀ ⊗ z zᵀ / N with the ridge, (2 (P + 1))²."""
    step = max(1, len(z) // max(_CURVED, 4 * z.shape[1]))
    z, by, bend = z[::step], by[:, ::step], bend[::step]
    width = z.shape[1]
    both = np.concatenate([z * by[0][:, None], z * by[1][:, None]], 1)
    whole = (both * bend[:, None]).T @ both / len(z)
    held = np.full(2 * width, ridge)
    held[[width - 1, -1]] = 1e-9
    return np.asarray(whole + np.diag(held))
