"""Softmax regression of labels on logits: the convex problem behind Vector, Matrix and Dirichlet."""

from typing import Any

import numpy as np

from shiftprism._checks import Floats, Integers
from shiftprism.calibrators._descent import GAP, Descent, Solve, cholesky_solver, descend
from shiftprism.calibrators._scaled_loss import row_maxima

DENSE = 20
"""Up to this many classes the whole Hessian of a matrix, (K² + K)², is cheap enough to start with."""

FLOAT32_GAP = 1e-7
"""How near a minimum a search can come on losses computed in float32; nearer, it would follow rounding."""


class SoftmaxRegression:
    """The mean NLL of θ [z, 1] and its derivatives, for inputs z (N, K) and θ = [W, b] (K, K + 1).

    With many classes the two matrix products of an evaluation take nearly all of its time: they are done in float32,
    and the sums over samples in float64. The loss is then right to about 1e-8.
    """

    def __init__(self, z: Floats, labels: Integers) -> None:
        self.x = np.concatenate([z, np.ones((len(z), 1))], 1)
        self._fast: Any = self.x if z.shape[1] <= DENSE else self.x.astype(np.float32)
        self.labels = labels
        self._rows = np.arange(len(z))
        self._buffer = np.empty(z.shape, self._fast.dtype)  # allocating it each time costs as much as the exponentials

    def rows(self, index: Integers) -> "SoftmaxRegression":
        """The problem of some of the samples."""
        return SoftmaxRegression(self.x[index, :-1], self.labels[index])

    def probabilities(self, theta: Floats) -> tuple[Any, float]:
        """softmax(θ [z, 1]), (N, K), and the mean NLL. The next call overwrites the array."""
        np.matmul(self._fast, theta.T.astype(self._fast.dtype), out=self._buffer)
        return self._buffer, softmax_in_place(self._buffer, self._rows, self.labels)

    def nll(self, theta: Floats) -> float:
        """The mean NLL."""
        return self.probabilities(theta)[1]

    def curvature(self, theta: Floats) -> "Curvature":
        """What the Hessian is like at θ, for any ridge. It also serves a problem of some of the samples."""
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

        gap = gap if len(centre) <= DENSE else max(gap, FLOAT32_GAP)
        return descend(objective, start.ravel(), curvature.solve(2 * weights), gap)


def softmax_in_place(logits: Any, rows: Integers, labels: Integers) -> float:
    """Turn logits (N, K) into probabilities and return the mean NLL of the labels."""
    logits -= row_maxima(logits)
    label_logit = logits[rows, labels].mean(dtype=np.float64)
    np.exp(logits, out=logits)
    total = np.einsum("nk->n", logits)
    logits /= total[:, None]
    return float(np.log(total).mean(dtype=np.float64) - label_logit)


class Dense:
    """The Hessian itself, (K (K + 1))² numbers."""

    def __init__(self, p: Floats, x: Floats) -> None:
        self.hessian = _matrix_hessian(p, x)

    def solve(self, ridge: Floats) -> Solve:
        """(H + ridge)⁻¹ g."""
        return cholesky_solver(self.hessian + np.diag(ridge.ravel()))


def _matrix_hessian(p: Floats, x: Floats) -> Floats:
    """The Hessian of the mean NLL in θ: mean (diag p − p pᵀ) ⊗ x xᵀ."""
    samples, classes = p.shape
    width = x.shape[1]
    # Both factors are symmetric: only their upper triangles are multiplied, a quarter of the work.
    left, right = np.triu_indices(classes)
    above, below = np.triu_indices(width)
    weights = p[:, left] * ((left == right) - p[:, right])
    products = weights.T @ (x[:, above] * x[:, below]) / samples
    blocks = np.empty((classes, classes, width, width))
    blocks[left[:, None], right[:, None], above, below] = products
    blocks[left[:, None], right[:, None], below, above] = products
    blocks[right, left] = blocks[left, right]
    return blocks.transpose(0, 2, 1, 3).reshape(classes * width, classes * width)


def diagonal_hessian(p: Any, z: Any) -> Floats:
    """The Hessian of the mean NLL in (diag W, b), (2K, 2K)."""
    samples, classes = p.shape
    both = np.concatenate([p * z, p], 1)
    hessian = -(both.T @ both) / samples
    scale, shift = np.arange(classes), np.arange(classes) + classes
    first, second = np.einsum("nk->k", both[:, :classes]), np.einsum("nk,nk->k", both[:, :classes], z)
    hessian[scale, scale] += second / samples
    hessian[scale, shift] += first / samples
    hessian[shift, scale] += first / samples
    hessian[shift, shift] += p.sum(0) / samples
    return np.asarray(hessian, dtype=np.float64)


class TwoLevel:
    """For many classes: the inverse of mean (diag p − p pᵀ) ⊗ mean x xᵀ + λ, plus the exact one of the diagonal block.

    The mean of the products is replaced by the product of the means, which two eigen-decompositions invert. Diagonal
    and intercept are penalised less than the rest, so that the approximation is worst for them: their own block is
    inverted exactly.
    """

    def __init__(self, p: Any, x: Any) -> None:
        samples, classes = p.shape
        self.block = diagonal_hessian(p, x[:, :classes])
        among_classes = (np.diag(p.mean(0)) - (p.T @ p) / samples).astype(np.float64)
        self.class_values, self.class_vectors = np.linalg.eigh(among_classes)
        self.input_values, self.input_vectors = np.linalg.eigh(((x.T @ x) / samples).astype(np.float64))

    def solve(self, ridge: Floats) -> Solve:
        """An approximation of (H + ridge)⁻¹ g."""
        classes, diagonal = len(ridge), np.arange(len(ridge))
        solve_block = cholesky_solver(self.block + np.diag(np.concatenate([ridge[diagonal, diagonal], ridge[:, -1]])))
        left, right = self.class_vectors, self.input_vectors
        # Rounding makes some eigenvalues slightly negative. An off-diagonal entry's ridge stands for all of them.
        values = np.maximum(self.class_values, 0)[:, None] * np.maximum(self.input_values, 0)
        scale = 1 / (values + float(ridge[0, 1]) + 1e-12)

        def solve(flat: Floats) -> Floats:
            gradient = flat.reshape(classes, classes + 1)
            result = left @ ((left.T @ gradient @ right) * scale) @ right.T
            direct = solve_block(np.concatenate([gradient[diagonal, diagonal], gradient[:, -1]]))
            result[diagonal, diagonal] += direct[:classes]
            result[:, -1] += direct[classes:]
            return np.asarray(result.ravel())

        return solve


Curvature = Dense | TwoLevel
