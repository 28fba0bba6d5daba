"""The one solver of the room: L-BFGS on top of a known curvature, to an estimated distance from the optimum."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shiftprism._checks import Floats

Objective = Callable[[Floats], tuple[float, Floats]]
"""Loss and gradient at a point."""
Solve = Callable[[Floats], Floats]
"""H₀⁻¹ g, for a fixed positive definite H₀ that resembles the Hessian where the search begins."""

GAP = 1e-9
"""A search ends where the loss is this close to its minimum, as far as the curvature seen can tell."""
_MEMORY = 20


class Descent(NamedTuple):
    """Where a search ended."""

    point: Floats
    loss: float
    converged: bool
    iterations: int


def descend(objective: Objective, start: Floats, solve: Solve, gap: float = GAP, most: int = 500) -> Descent:
    """The minimum of a smooth function by L-BFGS (Nocedal 1980) with H₀⁻¹ = `solve` under its memory of steps.

    With d = −H⁻¹g the decrement −½ g·d estimates the loss still to be gained, whatever the units of the parameters, so
    it is what ends the search. A step is halved until the loss falls by a share of what the slope promises.
    """
    point, (loss, gradient) = start, objective(start)
    steps: list[tuple[Floats, Floats, float]] = []
    for iteration in range(most):
        direction = -_inverse_times(gradient, steps, solve)
        slope = float(gradient @ direction)
        if -slope / 2 <= gap:
            return Descent(point, loss, True, iteration)
        size = 1.0
        while True:
            candidate = point + size * direction
            found, changed = objective(candidate)
            if found <= loss + 1e-4 * size * slope:
                break
            size /= 2
            if size < 1e-6:  # rounding hides what is left to gain: the end, if that is little
                return Descent(point, loss, -slope / 2 < 1e-6, iteration)
        moved, bent = candidate - point, changed - gradient
        curvature = float(moved @ bent)
        if curvature > 1e-12 * float(bent @ bent) ** 0.5 * float(moved @ moved) ** 0.5:
            steps = [*steps[1 - _MEMORY :], (moved, bent, curvature)]
        point, loss, gradient = candidate, found, changed
    return Descent(point, loss, False, most)


def _inverse_times(gradient: Floats, steps: list[tuple[Floats, Floats, float]], solve: Solve) -> Floats:
    """H⁻¹ g by the two-loop recursion."""
    rest = gradient.copy()
    shares = []
    for moved, bent, curvature in reversed(steps):
        share = float(moved @ rest) / curvature
        rest -= share * bent
        shares.append(share)
    result = solve(rest)
    if steps:  # the last step shows how far H₀ is off along it
        moved, bent, curvature = steps[-1]
        result *= curvature / float(bent @ solve(bent))
    for (moved, bent, curvature), share in zip(steps, reversed(shares), strict=True):
        result += (share - float(bent @ result) / curvature) * moved
    return np.asarray(result)


def factored(hessian: Floats) -> Solve:
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
    return lambda gradient: gradient
