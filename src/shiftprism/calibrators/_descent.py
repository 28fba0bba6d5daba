"""The solver of this room: L-BFGS on top of a known curvature, down to an estimated distance from the optimum."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shiftprism._checks import Floats

Objective = Callable[[Floats], tuple[float, Floats]]
"""Loss and gradient at a point."""
Solve = Callable[[Floats], Floats]
"""H₀⁻¹ g, for a fixed positive definite H₀ that resembles the Hessian where the search starts."""

GAP = 1e-9
"""A search ends where the loss is this close to its minimum, as far as the curvature seen so far can tell."""
FOLD_GAP = 1e-7
"""The same for fits to folds, which only decide whether a fit is applied: far below the standard error that decides."""
_MEMORY = 20
"""How many steps L-BFGS remembers."""


class Descent(NamedTuple):
    """Where a search ended."""

    point: Floats
    loss: float
    converged: bool
    iterations: int


class _Step(NamedTuple):
    """One remembered step: s and y of L-BFGS, and s·y."""

    move: Floats
    gradient_change: Floats
    curvature: float


def descend(objective: Objective, start: Floats, solve: Solve, gap: float = GAP, most: int = 500) -> Descent:
    """Minimise a smooth function by L-BFGS (Nocedal 1980) with H₀⁻¹ = `solve` under its memory of steps.

    With d = −H⁻¹g the decrement −½ g·d estimates the loss still to be gained, whatever the units of the parameters. So
    it decides when the search ends. A step is halved until the loss falls by a share of what the slope promises.
    """
    point, (loss, gradient) = start, objective(start)
    memory: list[_Step] = []
    for iteration in range(most):
        direction = -_inverse_times(gradient, memory, solve)
        slope = float(gradient @ direction)
        if -slope / 2 <= gap:
            return Descent(point, loss, True, iteration)
        size = 1.0
        while True:
            new_point = point + size * direction
            new_loss, new_gradient = objective(new_point)
            if new_loss <= loss + 1e-4 * size * slope:
                break
            size /= 2
            if size < 1e-6:  # rounding hides what is left to gain; that is convergence if little is left
                return Descent(point, loss, -slope / 2 < 1e-6, iteration)
        move, change = new_point - point, new_gradient - gradient
        curvature = float(move @ change)
        # A step along which the gradient hardly changes would make H⁻¹ blow up: it is not remembered.
        if curvature > 1e-12 * float(change @ change) ** 0.5 * float(move @ move) ** 0.5:
            memory = [*memory[1 - _MEMORY :], _Step(move, change, curvature)]
        point, loss, gradient = new_point, new_loss, new_gradient
    return Descent(point, loss, False, most)


def _inverse_times(gradient: Floats, memory: list[_Step], solve: Solve) -> Floats:
    """H⁻¹ g by the two-loop recursion."""
    rest = gradient.copy()
    shares = []
    for move, change, curvature in reversed(memory):
        share = float(move @ rest) / curvature
        rest -= share * change
        shares.append(share)
    result = solve(rest)
    if memory:  # the last step shows by how much H₀ is off along it
        _, change, curvature = memory[-1]
        result *= curvature / float(change @ solve(change))
    for (move, change, curvature), share in zip(memory, reversed(shares), strict=True):
        result += (share - float(change @ result) / curvature) * move
    return np.asarray(result)


def cholesky_solver(hessian: Floats) -> Solve:
    """H₀⁻¹ g by the Cholesky factor of a symmetric matrix, made positive definite by a ridge relative to its trace."""
    from scipy.linalg import cho_factor, cho_solve

    size = len(hessian)
    ridge = 1e-12 * float(np.trace(hessian)) / size + 1e-300
    for _ in range(40):
        try:
            factor = cho_factor(hessian + ridge * np.eye(size))
            return lambda gradient: np.asarray(cho_solve(factor, gradient))
        except np.linalg.LinAlgError:
            ridge *= 10
    return lambda gradient: gradient  # not even a large ridge helps: plain L-BFGS
