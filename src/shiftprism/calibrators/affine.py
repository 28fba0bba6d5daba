"""Vector, matrix and Dirichlet scaling: an affine map of the logits, held to the best temperature as data ask."""

from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftprism._checks import Floats, choice, wrong
from shiftprism.calibrators._affine import DENSE, ROUGH_GAP, Affine, diagonal_hessian, softmax_in_place
from shiftprism.calibrators._calibrator import FEWEST, UNFITTED, Calibrator, FitData, Report, fit_data, mean_nll
from shiftprism.calibrators._descent import GAP, descend, factored
from shiftprism.calibrators._path import PAPER, Penalty, choose, identity
from shiftprism.calibrators._schedule import schedule
from shiftprism.calibrators.temperature import Optimum, optimal_temperature
from shiftprism.outputs import Outputs

Method = Literal["lbfgs", "sgd"]
Search = Literal["odir", "shrink"]

_AT_ONCE = 1 << 16
PRIOR = 72.0
"""A scale or intercept of Vector costs its square / (72 N): a Gaussian of deviation 6 about the temperature. It keeps
the intercept of a class that never occurs finite and moves the NLL of well-posed fits by about 1e-7."""


class Vector(Calibrator):
    """v ∘ logits + b, a scale and an intercept for each class (Guo et al. 2017). Predictions may change.

    >>> outputs = Outputs.from_logits(torch.randn(400, 3))
    >>> fitted = Vector.fit(outputs, torch.arange(400) % 3)
    >>> fitted.report.converged and fitted.report.nll_after < fitted.report.nll_before
    True
    """

    keeps_predictions: ClassVar[bool] = False
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, report: Report = UNFITTED) -> None:
        """`weight` and `bias` (K,)."""
        super().__init__()
        if weight.ndim != 1 or weight.shape != bias.shape:
            got = f"shapes {tuple(weight.shape)} and {tuple(bias.shape)}"
            raise wrong("weight", "of shape (K,), with a bias of shape (K,)", got, "one number for each class")
        self._hold(report, weight=weight, bias=bias)

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> "Vector":
        """The minimum of the cross entropy plus a weak prior about the best temperature, from there."""
        data = fit_data(outputs, labels, logits, probabilities)
        best = optimal_temperature(data.logits, data.labels)
        report = Report(best.converged, best.iterations, best.before, best.after, _kept(data, best))
        ones = torch.ones(data.outputs.K, dtype=torch.float64)
        if report.note:
            return cls(ones / best.temperature, 0 * ones, report)
        point, converged, iterations = _vector_minimum(data.logits / best.temperature, data)
        weight, bias = point[: data.outputs.K] / best.temperature, point[data.outputs.K :]
        after = mean_nll(data.logits * weight + bias, data.labels)
        if after > best.after:  # the prior's price, where a temperature was all there was to find
            return cls(ones / best.temperature, 0 * ones, report._replace(note="kept the temperature"))
        report = report._replace(converged=converged, iterations=best.iterations + iterations, nll_after=after)
        return cls(torch.from_numpy(weight), torch.from_numpy(bias), report)

    def forward(self, outputs: Outputs) -> Tensor:
        z = _sized(outputs, len(self.weight)).logits
        return self.weight.to(z.dtype) * z + self.bias.to(z.dtype)


class _Fitted(NamedTuple):
    weight: Floats
    bias: Floats
    report: Report


class Matrix(Calibrator):
    """W logits + b (Guo et al. 2017), by default held to the best temperature as strongly as held-out data ask for.

    >>> outputs = Outputs.from_logits(torch.randn(400, 3))
    >>> fitted = Matrix.fit(outputs, torch.arange(400) % 3, penalty=PAPER)
    >>> fitted.report.converged and fitted.report.nll_after < fitted.report.nll_before
    True
    """

    keeps_predictions: ClassVar[bool] = False
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, report: Report = UNFITTED) -> None:
        """`weight` (K, K) and `bias` (K,)."""
        super().__init__()
        _hold_square(self, weight, bias, report)

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        penalty: Penalty | Search = "shrink",
        method: Method = "lbfgs",
        folds: int = 5,
        seed: int = 0,
    ) -> "Matrix":
        """The minimum of cross entropy + penalty, from the best temperature.

        `penalty="shrink"` holds diagonal, rest and intercept to the temperature, `"odir"` all but the diagonal; the
        strength is that of the least held-out NLL on `folds` folds, along a path of solutions. A `Penalty` is taken as
        it is: `PAPER` is the paper's 1e-7. `method="sgd"` is the paper's schedule, with rate 0.1.
        """
        data = fit_data(outputs, labels, logits, probabilities)
        found = _fit_square(data, data.logits, penalty, method, 0.1, folds, seed)
        return cls(torch.from_numpy(found.weight), torch.from_numpy(found.bias), found.report)

    def forward(self, outputs: Outputs) -> Tensor:
        z = _sized(outputs, len(self.weight)).logits
        return F.linear(z, self.weight.to(z.dtype), self.bias.to(z.dtype))


class Dirichlet(Calibrator):
    """W log_softmax(logits) + b with ODIR: off-diagonal and intercept penalised (Kull et al. 2019).

    >>> outputs = Outputs.from_logits(torch.randn(400, 3))
    >>> fitted = Dirichlet.fit(outputs, torch.arange(400) % 3, penalty=PAPER)
    >>> fitted.report.converged and fitted.report.nll_after < fitted.report.nll_before
    True
    """

    keeps_predictions: ClassVar[bool] = False
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, report: Report = UNFITTED) -> None:
        """`weight` (K, K) and `bias` (K,)."""
        super().__init__()
        _hold_square(self, weight, bias, report)

    @classmethod
    def fit(
        cls,
        outputs: Outputs | None = None,
        labels: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        penalty: Penalty | Search = "odir",
        method: Method = "lbfgs",
        folds: int = 5,
        seed: int = 0,
    ) -> "Dirichlet":
        """As `Matrix.fit`, on log-probabilities. The rate of `method="sgd"` is 0.01, and 0.005 for over 10 classes."""
        data = fit_data(outputs, labels, logits, probabilities)
        z = F.log_softmax(data.outputs.logits, 1).numpy()
        found = _fit_square(data, z, penalty, method, 0.01 if data.outputs.K <= 10 else 0.005, folds, seed)
        return cls(torch.from_numpy(found.weight), torch.from_numpy(found.bias), found.report)

    def forward(self, outputs: Outputs) -> Tensor:
        z = F.log_softmax(_sized(outputs, len(self.weight)).logits, 1)
        return F.linear(z, self.weight.to(z.dtype), self.bias.to(z.dtype))


def _hold_square(calibrator: Calibrator, weight: Tensor, bias: Tensor, report: Report) -> None:
    if weight.ndim != 2 or weight.shape != (len(bias), len(bias)) or bias.ndim != 1:
        got = f"shapes {tuple(weight.shape)} and {tuple(bias.shape)}"
        raise wrong("weight", "of shape (K, K), with a bias of shape (K,)", got, "K is the number of classes")
    calibrator._hold(report, weight=weight, bias=bias)


def _sized(outputs: Outputs, classes: int) -> Outputs:
    if classes != outputs.K:
        raise wrong("outputs", f"of {classes} classes", outputs.K, "this calibrator was fitted to another model")
    return outputs


def _kept(data: FitData, best: Optimum) -> str:
    """Why the temperature is all that can be fitted, or nothing."""
    if best.note.startswith("every prediction was right"):
        return f"kept the temperature: {best.note}"
    fewest = max(FEWEST, data.outputs.K)
    return f"kept the temperature: fewer than {fewest} samples" if len(data.labels) < fewest else ""


def _vector_minimum(z: Floats, data: FitData) -> tuple[Floats, bool, int]:
    samples, classes = z.shape
    rows = np.arange(samples)
    centre = np.concatenate([np.ones(classes), np.zeros(classes)])
    weight = 1 / (PRIOR * samples)
    fast = z if classes <= DENSE else z.astype(np.float32)
    p = np.empty_like(fast)
    parts = [slice(begin, begin + _AT_ONCE // classes + 1) for begin in range(0, samples, _AT_ONCE // classes + 1)]

    def objective(point: Floats) -> tuple[float, Floats]:
        factor, bias = point.astype(fast.dtype).reshape(2, classes)
        loss, slopes = 0.0, np.zeros((2, classes))
        for part in parts:  # a piece that stays in the cache is read from memory once
            q, x, y = p[part], fast[part], data.labels[part]
            np.multiply(x, factor, out=q)
            np.add(q, bias, out=q)
            loss += softmax_in_place(q, rows[: len(q)], y) * len(q)
            q[rows[: len(q)], y] -= 1
            slopes += np.einsum("nk,nk->k", q, x), np.einsum("nk->k", q)
        away = point - centre
        return loss / samples + weight * float(away @ away), slopes.ravel() / samples + 2 * weight * away

    point, steps, converged = centre, 0, False
    for _ in range(20):  # the curvature is cheap, and taken anew where the search has got to
        objective(point)
        p[rows, data.labels] += 1
        hessian = diagonal_hessian(p, fast) + 2 * weight * np.eye(2 * classes)
        found = descend(objective, point, factored(hessian), GAP if classes <= DENSE else ROUGH_GAP, most=6)
        point, steps, converged = found.point, steps + found.iterations, found.converged
        if converged:
            break
    return point, converged, steps


def _fit_square(
    data: FitData, z: Floats, penalty: Penalty | Search, method: Method, rate: float, folds: int, seed: int
) -> _Fitted:
    choice("method", method, ("lbfgs", "sgd"))
    penalty = penalty.check() if isinstance(penalty, Penalty) else penalty
    if isinstance(penalty, str):
        choice("penalty", penalty, ("odir", "shrink"))
    if not folds >= 2:
        raise wrong("folds", "at least 2", folds, "5 is usual")
    if method == "sgd":
        return _scheduled(data, z, rate, seed)
    classes = data.outputs.K
    best = optimal_temperature(z, data.labels)
    report = Report(best.converged, best.iterations, best.before, best.after, _kept(data, best))
    alone = _Fitted(np.eye(classes) / best.temperature, np.zeros(classes), report)
    if report.note:
        return alone
    problem, spent, note = Affine(z / best.temperature, data.labels), best.iterations, ""
    if isinstance(penalty, str):
        chosen = choose(problem, best.temperature, penalty == "shrink", folds, seed)
        spent += chosen.iterations
        if chosen.penalty is None:
            note = f"kept the temperature: {penalty} was no better on {folds} folds"
            return alone._replace(report=report._replace(iterations=spent, note=note))
        penalty = chosen.penalty
        note = f"penalty {tuple(float(f'{weight:.3g}') for weight in penalty)} by {folds}-fold cross validation"
    start = identity(classes)
    weights = penalty.weights(classes, best.temperature)
    found = problem.minimum(start, weights, start, problem.curvature(start))
    theta = found.point.reshape(classes, classes + 1)
    weight, bias = theta[:, :classes] / best.temperature, theta[:, classes]
    after = mean_nll(z @ weight.T + bias, data.labels)
    report = Report(found.converged, spent + found.iterations, best.before, after, note)
    return _Fitted(weight, bias, report) if after <= best.after else alone


def _scheduled(data: FitData, z: Floats, rate: float, seed: int) -> _Fitted:
    """The paper's: a fresh linear layer (not the identity), the norms of ODIR's parts weighed 1e-7 (not squared)."""
    classes = data.outputs.K
    x, labels = torch.from_numpy(z).float(), torch.from_numpy(data.labels)
    off = ~torch.eye(classes, dtype=torch.bool)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(classes, classes)

        def loss(index: Tensor) -> Tensor:
            norms = layer.weight[off].norm() / max(classes * (classes - 1), 1) + layer.bias.norm() / classes
            total: Tensor = F.cross_entropy(layer(x[index]), labels[index]) + PAPER.off_diagonal * norms
            return total

        steps = schedule(layer, loss, len(x), rate)
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    before, after = mean_nll(z, data.labels), mean_nll(z @ weight.T + bias, data.labels)
    report = Report(True, steps, before, after, "a fixed schedule: convergence is not checked")
    if after <= before:
        return _Fitted(weight, bias, report)
    note = "kept the model's own logits: the schedule ended worse"
    return _Fitted(np.eye(classes), np.zeros(classes), report._replace(nll_after=before, note=note))
