"""How strongly to hold a matrix to the temperature: the penalties, and their choice by cross-validated paths."""

from typing import NamedTuple

import numpy as np

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._affine import Affine

_STRENGTHS = tuple(10.0 ** (exponent / 2) for exponent in range(3, -9, -1))
"""From 31 to 1e-4 of the reference strengths, the strongest first: each solution starts the next, weaker one."""
_ROUGH = 1e-6
"""How near its optimum a solution on the path must be: far less than strengths differ in."""


class Penalty(NamedTuple):
    """Weights beside the mean NLL: λ mean_{i≠j} W_ij² + μ mean b_i² + ν mean (W_ii − 1/T*)².

    ν = 0 is ODIR (Kull et al. 2019); with ν the whole matrix is held to the best temperature T*.
    """

    off_diagonal: float
    intercept: float
    diagonal: float = 0.0

    def check(self) -> "Penalty":
        """Itself, if no weight is negative."""
        if not all(0 <= weight < float("inf") for weight in self):
            raise wrong("penalty", "finite weights ≥ 0", tuple(self), "0 leaves a part free")
        return self

    def weights(self, classes: int, temperature: float) -> Floats:
        """Of the squares of each entry of [W T*, b], (K, K + 1)."""
        diagonal, off = self.diagonal / classes, self.off_diagonal / max(classes * (classes - 1), 1)
        weights = np.full((classes, classes + 1), off / temperature**2)
        weights[np.arange(classes), np.arange(classes)] = diagonal / temperature**2
        weights[:, -1] = self.intercept / classes
        return weights


PAPER = Penalty(1e-7, 1e-7)
"""The paper's: practically none."""


class Choice(NamedTuple):
    """A penalty (None: nothing beats the temperature), and the iterations spent on the search."""

    penalty: Penalty | None
    iterations: int


def reference(classes: int, samples: int, temperature: float, shrink: bool) -> Penalty:
    """Strength 1: an off-diagonal entry weighs K (K − 1)/N, others K/N (Berta et al. 2026), in units of 1/T*.

    In ODIR's units of means that is λ = (K (K − 1))² T*²/N, μ = K²/N.
    """
    entries = classes * (classes - 1)
    diagonal = classes**2 * temperature**2 / samples if shrink else 0.0
    return Penalty(entries**2 * temperature**2 / samples, classes**2 / samples, diagonal)


def choose(problem: Affine, temperature: float, shrink: bool, folds: int, seed: int) -> Choice:
    """First one strength for all weights, then the intercept's beside the others'."""
    classes, samples = problem.x.shape[1] - 1, len(problem.x)
    unit = reference(classes, samples, temperature, shrink)
    order = np.random.default_rng(seed).permutation(samples)
    parts = [order[number::folds] for number in range(folds)]
    paths = [_Fold(problem, np.setdiff1d(order, part), part) for part in parts]
    base = float(np.mean([fold.held.nll(fold.theta) for fold in paths]))
    best, scale = base, 0.0
    waited = 0
    for strength in _STRENGTHS:
        found = _step(paths, _times(unit, strength, strength), temperature)
        if found < best - 1e-9:
            best, scale, waited = found, strength, 0
            for fold in paths:
                fold.best = fold.theta
        else:
            waited += 1
            if waited == (1 if scale else 3):  # past the best one; or nothing beats the temperature
                break
    if scale == 0.0:
        return Choice(None, sum(fold.iterations for fold in paths))
    intercept = scale
    for factor in (10.0, 0.1, 0.01):
        for fold in paths:
            fold.theta = fold.best
        found = _step(paths, _times(unit, scale, scale * factor), temperature)
        if found < best - 1e-9:
            best, intercept = found, scale * factor
    return Choice(_times(unit, scale, intercept), sum(fold.iterations for fold in paths))


class _Fold:
    """One fold on its path: the data kept, the data held out, and where the last solution was."""

    def __init__(self, problem: Affine, kept: Integers, held: Integers) -> None:
        self.kept, self.held = problem.rows(kept), problem.rows(held)
        self.theta = self.best = identity(problem.x.shape[1] - 1)
        self.iterations = 0


def identity(classes: int) -> Floats:
    """[I, 0], the temperature in units of 1/T*."""
    return np.eye(classes, classes + 1)


def _times(unit: Penalty, strength: float, intercept: float) -> Penalty:
    return Penalty(unit.off_diagonal * strength, unit.intercept * intercept, unit.diagonal * strength)


def _step(folds: list[_Fold], penalty: Penalty, temperature: float) -> float:
    """The mean held-out NLL at this penalty, each fold going on from its last solution."""
    classes = len(folds[0].theta)
    weights = penalty.weights(classes, temperature)
    curvature = folds[0].kept.curvature(folds[0].theta)  # near enough for the others, too
    losses = []
    for fold in folds:
        found = fold.kept.minimum(identity(classes), weights, fold.theta, curvature, _ROUGH)
        fold.theta = found.point.reshape(classes, classes + 1)
        fold.iterations += found.iterations
        losses.append(fold.held.nll(fold.theta))
    return float(np.mean(losses))
