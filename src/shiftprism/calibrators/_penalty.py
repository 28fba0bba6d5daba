"""How strongly to hold a matrix to the temperature: penalties, and the choice of one by cross validation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.calibrators._softmax_regression import SoftmaxRegression

_STRENGTHS = tuple(10.0 ** (exponent / 2) for exponent in range(3, -9, -1))
"""From 31 to 1e-4 of the reference strength, the strongest first: each solution starts the next, weaker one."""
_ROUGH_GAP = 1e-6
"""How near its optimum a solution on the path must be: strengths differ by far more."""
_GAIN = 1e-9
"""By how much the held-out NLL must fall for a strength to count as better."""


class Penalty(NamedTuple):
    """Weights beside the mean NLL: λ mean_{i≠j} W_ij² + μ mean b_i² + ν mean (W_ii − 1/T*)².

    ν = 0 is ODIR (Kull et al. 2019); with ν the whole matrix is held to the best temperature T*.
    """

    off_diagonal: float
    intercept: float
    diagonal: float = 0.0

    @staticmethod
    def reference(classes: int, samples: int, temperature: float, shrink: bool) -> "Penalty":
        """Strength 1: an off-diagonal entry weighs K (K − 1)/N, others K/N (Berta et al. 2026), in units of 1/T*.

        In ODIR's units of means that is λ = (K (K − 1))² T*²/N, μ = K²/N. Without `shrink`, ν = 0.
        """
        entries = classes * (classes - 1)
        diagonal = classes**2 * temperature**2 / samples if shrink else 0.0
        return Penalty(entries**2 * temperature**2 / samples, classes**2 / samples, diagonal)

    def check(self) -> "Penalty":
        """Itself, if no weight is negative."""
        if not all(0 <= weight < float("inf") for weight in self):
            raise wrong("penalty", "finite weights ≥ 0", tuple(self), "0 leaves a part free")
        return self

    def times(self, matrix: float, intercept: float) -> "Penalty":
        """The weights of the matrix times one strength, that of the intercept times another."""
        return Penalty(self.off_diagonal * matrix, self.intercept * intercept, self.diagonal * matrix)

    def weights(self, classes: int, temperature: float) -> Floats:
        """The weight of the square of each entry of [W T*, b], (K, K + 1)."""
        diagonal, off = self.diagonal / classes, self.off_diagonal / max(classes * (classes - 1), 1)
        weights = np.full((classes, classes + 1), off / temperature**2)
        weights[np.arange(classes), np.arange(classes)] = diagonal / temperature**2
        weights[:, -1] = self.intercept / classes
        return weights


PAPER = Penalty(1e-7, 1e-7)
"""The paper's: practically none."""


class Choice(NamedTuple):
    """A penalty (None: nothing beats the temperature), and the iterations that the search took."""

    penalty: Penalty | None
    iterations: int
    note: str = ""


def choose_penalty(problem: SoftmaxRegression, temperature: float, shrink: bool, folds: int, seed: int) -> Choice:
    """The penalty of the least held-out NLL: first one strength for all weights, then another for the intercept."""
    samples, width = problem.x.shape
    unit = Penalty.reference(width - 1, samples, temperature, shrink)
    order = np.random.default_rng(seed).permutation(samples)
    parts = [order[number::folds] for number in range(folds)]
    paths = [_Fold(problem, np.setdiff1d(order, part), part) for part in parts]
    least = float(np.mean([fold.held_out.nll(fold.theta) for fold in paths]))  # of the temperature
    solutions = _scout(paths[0], unit, temperature)

    def evaluate(place: int) -> float:
        """The mean held-out NLL of one strength on all folds, each from the first fold's solution."""
        for fold in paths:
            fold.theta = solutions[min(place, len(solutions) - 1)].theta
        return _advance(paths, unit.times(_STRENGTHS[place], _STRENGTHS[place]), temperature)

    place, loss = _descend_strengths(evaluate, min(range(len(solutions)), key=lambda place: solutions[place].loss))
    if not loss < least - _GAIN:
        return Choice(None, sum(fold.iterations for fold in paths))
    strength, least = _STRENGTHS[place], loss
    # The intercept may need another strength: class frequencies can differ where confusions do not.
    intercept = strength
    for factors in ((10.0,), (0.1, 0.01)):
        for factor in factors:
            for fold in paths:
                fold.theta = solutions[min(place, len(solutions) - 1)].theta
            loss = _advance(paths, unit.times(strength, strength * factor), temperature)
            if not loss < least - _GAIN:
                break  # further in this direction it would be worse still
            least, intercept = loss, strength * factor
    penalty = unit.times(strength, intercept)
    note = f"penalty {tuple(float(f'{weight:.3g}') for weight in penalty)} by {folds}-fold cross validation"
    return Choice(penalty, sum(fold.iterations for fold in paths), note)


class _Solution(NamedTuple):
    """θ at one strength, and its held-out NLL."""

    theta: Floats
    loss: float


def _scout(fold: "_Fold", unit: Penalty, temperature: float) -> list[_Solution]:
    """One fold's solutions from the strongest penalty on, until its held-out NLL rises: where all folds look."""
    found: list[_Solution] = []
    # Strong penalties leave nearly the temperature: up to two of them may be no better before a weaker one is.
    least, patience = fold.held_out.nll(fold.theta), 3
    for strength in _STRENGTHS:
        loss = _advance([fold], unit.times(strength, strength), temperature)
        found.append(_Solution(fold.theta, loss))
        least, patience = (loss, 1) if loss < least - _GAIN else (least, patience - 1)
        if not patience:
            break
    return found


def _descend_strengths(evaluate: Callable[[int], float], place: int) -> tuple[int, float]:
    """The strength that is no worse than the next stronger and the next weaker one, and its NLL."""
    losses: dict[int, float] = {}
    while True:
        near = [each for each in (place, place - 1, place + 1) if 0 <= each < len(_STRENGTHS)]
        losses.update({each: evaluate(each) for each in near if each not in losses})
        best = min(near, key=lambda each: losses[each])
        if best == place:
            return place, losses[place]
        place = best


class _Fold:
    """One fold on its path: the samples to fit, those held out, and the last solution."""

    def __init__(self, problem: SoftmaxRegression, fitted: Integers, held_out: Integers) -> None:
        self.fitted, self.held_out = problem.rows(fitted), problem.rows(held_out)
        self.theta = identity(problem.x.shape[1] - 1)
        self.iterations = 0


def identity(classes: int) -> Floats:
    """[I, 0]: the temperature, in units of 1/T*."""
    return np.eye(classes, classes + 1)


def _advance(folds: list[_Fold], penalty: Penalty, temperature: float) -> float:
    """Solve each fold at this penalty from its last solution; the mean held-out NLL."""
    classes = len(folds[0].theta)
    weights = penalty.weights(classes, temperature)
    curvature = folds[0].fitted.curvature(folds[0].theta)  # close enough to that of the other folds
    losses = []
    for fold in folds:
        solution = fold.fitted.minimum(identity(classes), weights, fold.theta, curvature, _ROUGH_GAP)
        fold.theta = solution.point.reshape(classes, classes + 1)
        fold.iterations += solution.iterations
        losses.append(fold.held_out.nll(fold.theta))
    return float(np.mean(losses))
