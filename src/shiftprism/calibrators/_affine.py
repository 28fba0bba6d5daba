"""Vector, matrix and Dirichlet scaling: an affine map of the logits, held to the best temperature."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import Floats, Integers, choice, wrong
from shiftprism.calibrators._calibrator import UNFITTED, Calibrator, Candidate, FitData, Report
from shiftprism.calibrators._descent import FOLD_GAP, GAP, Descent, cholesky_solver, descend
from shiftprism.calibrators._paper_schedule import NOTE, train_linear
from shiftprism.calibrators._penalty import PAPER, Choice, Penalty, choose_penalty, identity
from shiftprism.calibrators._scaled_loss import ScaledLoss, cache_slices
from shiftprism.calibrators._softmax_regression import (
    DENSE,
    FLOAT32_GAP,
    SoftmaxRegression,
    diagonal_hessian,
    softmax_in_place,
)
from shiftprism.calibrators._temperature import FEWEST, optimal_temperature, why_keep_temperature
from shiftprism.outputs import Outputs

Method = Literal["lbfgs", "sgd"]
Search = Literal["odir", "shrink"]

_PRIOR = 72.0
"""A scale or intercept of Vector costs its square / (72 N): a Gaussian of deviation 6 about the temperature. It keeps
the intercept of a class that never occurs finite and moves the NLL of well-posed fits by about 1e-7."""


class _Near(NamedTuple):
    """The fit to all data, for fits to most of them: their searches start here and end at a wider gap."""

    weight: Floats
    bias: Floats
    temperature: float

    def in_units_of(self, temperature: float) -> Floats:
        """[W T*, b] with the bias as the last column, or row after row for a vector."""
        return np.concatenate([np.atleast_2d(self.weight.T * temperature), self.bias[None]]).T


class _Affine(Calibrator, ABC):
    """A weight, (K,) or (K, K), and a bias (K,)."""

    includes_temperature = True
    weight: Tensor
    bias: Tensor
    _weight_dimensions: ClassVar[int]

    def __init__(
        self, weight: Tensor, bias: Tensor, *, unchanged: bool | Tensor = False, report: Report = UNFITTED
    ) -> None:
        if bias.ndim != 1 or weight.shape != (len(bias),) * self._weight_dimensions:
            shape = "(K,)" if self._weight_dimensions == 1 else "(K, K)"
            got = f"shapes {tuple(weight.shape)} and {tuple(bias.shape)}"
            raise wrong("weight", f"of shape {shape}, with a bias of shape (K,)", got, "K is the number of classes")
        super().__init__(report, unchanged, weight=weight, bias=bias)

    @classmethod
    def _of(cls, weight: Floats, bias: Floats) -> Calibrator:
        return cls(torch.from_numpy(weight), torch.from_numpy(bias))

    def _check_classes(self, outputs: Outputs) -> Tensor:
        """The logits, if there are as many as the calibrator was fitted to."""
        if len(self.bias) != outputs.K:
            advice = "this calibrator was fitted to another model"
            raise wrong("outputs", f"of {len(self.bias)} classes", outputs.K, advice)
        return outputs.logits


class Vector(_Affine):
    """v ∘ z + b, a scale and an intercept for each class (Guo et al. 2017).

    The fit minimises the cross entropy plus a weak prior about the best temperature, and starts there.

    >>> outputs = Outputs.from_logits(torch.randn(400, 3))
    >>> fitted = Vector.fit(outputs, torch.arange(400) % 3)
    >>> fitted.report.converged and fitted.report.nll_after < fitted.report.nll_before
    True
    """

    probabilities_suffice = True
    _weight_dimensions: ClassVar[int] = 1

    @classmethod
    def _fit(cls, data: FitData, *, near: _Near | None = None) -> list[Candidate]:
        best, classes = optimal_temperature(data.loss, near and near.temperature), data.outputs.K
        # All searches work in units of T*: the start is 1, and a prior or penalty means the same for every model.
        scaled = cls._of(np.ones(classes) / best.temperature, np.zeros(classes))
        if reason := why_keep_temperature(data.loss, max(FEWEST, classes)):
            return [best.candidate(scaled, reason)]
        start = near and near.in_units_of(best.temperature).T.ravel()
        found = _vector_minimum(data.logits / best.temperature, data.labels, start)
        weight, bias = found.point[:classes] / best.temperature, found.point[classes:]
        options = {"near": _Near(weight, bias, best.temperature)}
        iterations = best.iterations + found.iterations
        first = Candidate(cls._of(weight, bias), found.converged, iterations, fold_options=options)
        return [first, best.candidate(scaled)]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        z = self._check_classes(outputs)
        return self.weight.to(z.dtype) * z + self.bias.to(z.dtype)


class _Square(_Affine, ABC):
    """W x + b, with x the logits or the log-probabilities."""

    _weight_dimensions: ClassVar[int] = 2
    _penalty: ClassVar[Search]

    @staticmethod
    @abstractmethod
    def _inputs(logits: Tensor) -> Tensor:
        """What the matrix multiplies, (N, K)."""

    @staticmethod
    @abstractmethod
    def _rate(classes: int) -> float:
        """The learning rate of the paper's schedule."""

    @classmethod
    def _fit(
        cls,
        data: FitData,
        *,
        penalty: Penalty | Search | None = None,
        method: Method = "lbfgs",
        folds: int = 5,
        seed: int = 0,
        near: _Near | None = None,
    ) -> list[Candidate]:
        choice("method", method, ("lbfgs", "sgd"))
        penalty = cls._penalty if penalty is None else penalty
        if isinstance(penalty, Penalty):
            penalty.check()
        else:
            choice("penalty", penalty, ("odir", "shrink"))
        if not folds >= 2:
            raise wrong("folds", "at least 2", folds, "5 is usual")
        z, labels, classes = cls._inputs(data.outputs.logits).numpy(), data.labels, data.outputs.K
        if method == "sgd":
            return [cls._follow_paper(z, labels, seed)]
        loss = ScaledLoss(z, labels)
        best = optimal_temperature(loss, near and near.temperature)
        scaled = cls._of(np.eye(classes) / best.temperature, np.zeros(classes))
        if reason := why_keep_temperature(loss, max(FEWEST, classes)):
            return [best.candidate(scaled, reason)]
        problem = SoftmaxRegression(z / best.temperature, labels)
        chosen = (
            Choice(penalty, 0)
            if isinstance(penalty, Penalty)
            else choose_penalty(problem, best.temperature, penalty == "shrink", folds, seed)
        )
        iterations = best.iterations + chosen.iterations
        if chosen.penalty is None:
            best = best._replace(iterations=iterations)
            return [best.candidate(scaled, f"{penalty} was no better on {folds} folds")]
        centre = identity(classes)
        start = near.in_units_of(best.temperature) if near else centre
        weights = chosen.penalty.weights(classes, best.temperature)
        gap = FOLD_GAP if near else GAP
        found = problem.minimum(centre, weights, start, problem.curvature(start), gap)
        theta = found.point.reshape(classes, classes + 1)
        weight, bias = theta[:, :classes] / best.temperature, theta[:, classes]
        iterations += found.iterations
        options = {"penalty": chosen.penalty, "near": _Near(weight, bias, best.temperature)}
        first = Candidate(cls._of(weight, bias), found.converged, iterations, chosen.note, fold_options=options)
        return [first, best.candidate(scaled)]

    @classmethod
    def _follow_paper(cls, z: Floats, labels: Integers, seed: int) -> Candidate:
        """A fresh linear layer (not the identity); the norms of ODIR's parts are weighed with 1e-7 (not squared)."""
        classes = z.shape[1]
        x, targets = torch.from_numpy(z).float(), torch.from_numpy(labels)
        off = ~torch.eye(classes, dtype=torch.bool)

        def loss(layer: nn.Linear, index: Tensor) -> Tensor:
            norms = layer.weight[off].norm() / max(classes * (classes - 1), 1) + layer.bias.norm() / classes
            total: Tensor = F.cross_entropy(layer(x[index]), targets[index]) + PAPER.off_diagonal * norms
            return total

        weight, bias, steps = train_linear((classes, classes), loss, len(x), rate=cls._rate(classes), seed=seed)
        return Candidate(cls._of(weight, bias), True, steps, NOTE)

    def _calibrate(self, outputs: Outputs) -> Tensor:
        z = self._inputs(self._check_classes(outputs))
        return F.linear(z, self.weight.to(z.dtype), self.bias.to(z.dtype))


class Matrix(_Square):
    """W z + b, held to the best temperature as strongly as held-out data ask for (Guo et al. 2017).

    `fit` minimises cross entropy + penalty, from the best temperature. Its options:
    - `penalty="shrink"` holds diagonal, rest and intercept to the temperature, `"odir"` all but the diagonal; the
      strength is that of the least held-out NLL on `folds` folds. A `Penalty` is taken as it is, such as `PAPER`;
    - `method="sgd"` is the paper's schedule, with rate 0.1, in place of `"lbfgs"`;
    - `seed` draws the folds, or the layer and the batches of `"sgd"`.

    >>> outputs = Outputs.from_logits(torch.randn(400, 3))
    >>> fitted = Matrix.fit(outputs, torch.arange(400) % 3, penalty=PAPER)
    >>> fitted.report.converged and fitted.report.nll_after < fitted.report.nll_before
    True
    """

    _penalty: ClassVar[Search] = "shrink"

    @staticmethod
    def _inputs(logits: Tensor) -> Tensor:
        return logits

    @staticmethod
    def _rate(classes: int) -> float:
        return 0.1


class Dirichlet(_Square):
    """W log_softmax(z) + b, off-diagonal and intercept penalised: ODIR (Kull et al. 2019).

    `fit` takes the options of `Matrix`, with `penalty="odir"` as the default. The rate of `method="sgd"` is 0.01, and
    0.005 for more than 10 classes.

    >>> outputs = Outputs.from_logits(torch.randn(400, 3))
    >>> fitted = Dirichlet.fit(outputs, torch.arange(400) % 3, penalty=PAPER)
    >>> fitted.report.converged and fitted.report.nll_after < fitted.report.nll_before
    True
    """

    probabilities_suffice = True
    _penalty: ClassVar[Search] = "odir"

    @staticmethod
    def _inputs(logits: Tensor) -> Tensor:
        return F.log_softmax(logits, 1)

    @staticmethod
    def _rate(classes: int) -> float:
        return 0.01 if classes <= 10 else 0.005


def _vector_minimum(z: Floats, labels: Integers, near: Floats | None) -> Descent:
    """Scales and intercepts (2K,) of logits in units of T*: the least NLL + prior, from T* or from a point near it."""
    samples, classes = z.shape
    rows = np.arange(samples)
    centre = np.concatenate([np.ones(classes), np.zeros(classes)])
    weight = 1 / (_PRIOR * samples)
    fast = z if classes <= DENSE else z.astype(np.float32)
    p = np.empty_like(fast)
    slices = cache_slices(samples, classes)

    def objective(point: Floats) -> tuple[float, Floats]:
        """Loss and gradient; p is left holding probabilities minus the one-hot labels."""
        factor, bias = point.astype(fast.dtype).reshape(2, classes)
        loss, slopes = 0.0, np.zeros((2, classes))
        for part in slices:
            q, x, y = p[part], fast[part], labels[part]
            np.multiply(x, factor, out=q)
            np.add(q, bias, out=q)
            loss += softmax_in_place(q, rows[: len(q)], y) * len(q)
            q[rows[: len(q)], y] -= 1
            slopes += np.einsum("nk,nk->k", q, x), np.einsum("nk->k", q)
        away = point - centre
        return loss / samples + weight * float(away @ away), slopes.ravel() / samples + 2 * weight * away

    found = Descent(centre if near is None else near, np.inf, False, 0)
    gap = FOLD_GAP if near is not None else GAP if classes <= DENSE else FLOAT32_GAP
    for _ in range(20):  # the Hessian is cheap here, so it is computed again every six steps
        objective(found.point)
        p[rows, labels] += 1
        hessian = diagonal_hessian(p, fast) + 2 * weight * np.eye(2 * classes)
        part = descend(objective, found.point, cholesky_solver(hessian), gap, most=6)
        found = part._replace(iterations=found.iterations + part.iterations)
        if found.converged:
            break
    return found
