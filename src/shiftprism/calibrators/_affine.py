"""Softmax regression of labels on logits, the convex problem behind Vector, Matrix and Dirichlet."""

from typing import Any

import numpy as np

from shiftprism._checks import Floats, Integers
from shiftprism.calibrators._descent import GAP, Descent, Solve, descend, factored

DENSE = 20
"""Up to this many classes the whole Hessian of a matrix, (K² + K)², is cheap enough to begin with."""

ROUGH_GAP = 1e-7
"""How near a minimum a search can come on losses computed in float32; nearer, it would follow rounding."""


class Affine:
    """The mean NLL of θ [z, 1] and its derivatives, for inputs z (N, K) and θ = [W, b] (K, K + 1).

    With many classes the two matrix products of an evaluation are nearly all of its time: they are done in float32, and
    the sums over samples in float64. The loss is then right to about 1e-8.
    """

    def __init__(self, z: Floats, labels: Integers) -> None:
        self.x = np.concatenate([z, np.ones((len(z), 1))], 1)
        self._fast: Any = self.x if z.shape[1] <= DENSE else self.x.astype(np.float32)
        self.labels = labels
        self._rows = np.arange(len(z))
        self._buffer = np.empty(z.shape, self._fast.dtype)  # asking for new memory costs as much as the exponentials

    def rows(self, index: Integers) -> "Affine":
        """The problem of some of the samples."""
        return Affine(self.x[index, :-1], self.labels[index])

    def probabilities(self, theta: Floats) -> tuple[Any, float]:
        """softmax(θ [z, 1]), (N, K), good until the next call, and the mean NLL."""
        np.matmul(self._fast, theta.T.astype(self._fast.dtype), out=self._buffer)
        return self._buffer, softmax_in_place(self._buffer, self._rows, self.labels)

    def nll(self, theta: Floats) -> float:
        """The mean NLL."""
        return self.probabilities(theta)[1]

    def curvature(self, theta: Floats) -> "Curvature":
        """What the Hessian is like at θ, for any ridge; good for some of the samples, too."""
        p = self.probabilities(theta)[0]
        return Dense(p, self.x) if p.shape[1] <= DENSE else TwoLevel(p, self._fast)

    def minimum(
        self, centre: Floats, weights: Floats, start: Floats, curvature: "Curvature", gap: float = GAP
    ) -> Descent:
        """The θ that minimises NLL + Σ weights · (θ − centre)², flat."""
        samples = len(self.x)

        def objective(flat: Floats) -> tuple[float, Floats]:
            theta = flat.reshape(centre.shape)
            residual, loss = self.probabilities(theta)
            residual[self._rows, self.labels] -= 1
            away = theta - centre
            gradient = (residual.T @ self._fast).astype(np.float64) / samples + 2 * weights * away
            return loss + float((weights * away * away).sum()), gradient.ravel()

        gap = gap if len(centre) <= DENSE else max(gap, ROUGH_GAP)
        return descend(objective, start.ravel(), curvature.solve(2 * weights), gap)


def softmax_in_place(logits: Any, rows: Integers, labels: Integers) -> float:
    """Turn logits (N, K) into probabilities and return the mean NLL of the labels."""
    logits -= logits.max(1, keepdims=True)
    picked = logits[rows, labels].mean(dtype=np.float64)
    np.exp(logits, out=logits)
    total = np.einsum("nk->n", logits)
    logits /= total[:, None]
    return float(np.log(total).mean(dtype=np.float64) - picked)


class Dense:
    """The Hessian itself, (K (K + 1))² numbers."""

    def __init__(self, p: Floats, x: Floats) -> None:
        self.hessian = _dense(p, x)

    def solve(self, ridge: Floats) -> Solve:
        """(H + ridge)⁻¹ g."""
        return factored(self.hessian + np.diag(ridge.ravel()))


def _dense(p: Floats, x: Floats) -> Floats:
    """Of the mean NLL: mean (diag p − p pᵀ) ⊗ x xᵀ."""
    samples, classes = p.shape
    width = x.shape[1]
    left, right = np.triu_indices(classes)
    above, below = np.triu_indices(width)
    weights = p[:, left] * ((left == right) - p[:, right])
    blocks = weights.T @ (x[:, above] * x[:, below]) / samples
    whole = np.empty((classes, classes, width, width))
    whole[left[:, None], right[:, None], above, below] = blocks
    whole[left[:, None], right[:, None], below, above] = blocks
    whole[right, left] = whole[left, right]
    return whole.transpose(0, 2, 1, 3).reshape(classes * width, classes * width)


def diagonal_hessian(p: Any, z: Any) -> Floats:
    """The Hessian of the mean NLL in (diag W, b), (2K, 2K)."""
    samples, classes = p.shape
    both = np.concatenate([p * z, p], 1)
    whole = -(both.T @ both) / samples
    own = np.arange(classes)
    first, second = np.einsum("nk->k", both[:, :classes]), np.einsum("nk,nk->k", both[:, :classes], z)
    whole[own, own] += second / samples
    whole[own, own + classes] += first / samples
    whole[own + classes, own] += first / samples
    whole[own + classes, own + classes] += p.sum(0) / samples
    return np.asarray(whole, dtype=np.float64)


class TwoLevel:
    """For many classes: the inverse of mean (diag p − p pᵀ) ⊗ mean x xᵀ + λ, plus the exact one of the diagonal block.

    The first takes two eigen-decompositions; the second is for diagonal and intercept, which are penalised less.
    """

    def __init__(self, p: Any, x: Any) -> None:
        samples, classes = p.shape
        self.block = diagonal_hessian(p, x[:, :classes])
        self.among, self.turn = np.linalg.eigh((np.diag(p.mean(0)) - (p.T @ p) / samples).astype(np.float64))
        self.inputs, self.other = np.linalg.eigh(((x.T @ x) / samples).astype(np.float64))

    def solve(self, ridge: Floats) -> Solve:
        """An approximation of (H + ridge)⁻¹ g."""
        classes, turn, other = len(ridge), self.turn, self.other
        own = np.arange(classes)
        inner = factored(self.block + np.diag(np.concatenate([ridge[own, own], ridge[:, -1]])))
        scale = 1 / (np.maximum(self.among, 0)[:, None] * np.maximum(self.inputs, 0) + float(ridge[0, 1]) + 1e-12)

        def solve(gradient: Floats) -> Floats:
            given = gradient.reshape(classes, classes + 1)
            result = turn @ ((turn.T @ given @ other) * scale) @ other.T
            direct = inner(np.concatenate([given[own, own], given[:, -1]]))
            result[own, own] += direct[:classes]
            result[:, -1] += direct[classes:]
            return np.asarray(result.ravel())

        return solve


Curvature = Dense | TwoLevel
