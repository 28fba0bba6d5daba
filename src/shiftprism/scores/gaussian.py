"""Gaussians of one shape around the classes: how far features lie from the nearest."""

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import choice, wrong
from shiftprism.outputs import Outputs
from shiftprism.scores._fitted import Fitted, class_numbers, detached, finite_like, same_width, tame
from shiftprism.scores._moments import Moments
from shiftprism.scores._reading import read

RIDGE = 1e-6
"""Added to the diagonal, relative to the mean variance: harmless where the covariance has full rank, and a floor for
the directions in which the fit data do not spread."""
SPACES = ("features", "logits")


class Mahalanobis(Fitted):
    """−min_k (x − μ_k)ᵀ Σ⁻¹ (x − μ_k), (N,), with one Σ for all classes (Lee et al. 2018).

    `space="logits"` reads logits in place of features, as Tian et al. do. Σ is the mean of the products about the class
    means (divided by N), plus a ridge of `ridge` times the mean variance, which grows tenfold until Σ can be factorised
    in float64; the buffer `ridge` tells the variance that was added. Data without any spread have Σ = 1 (ridge 1).

    >>> outputs = Outputs(*(torch.tensor([[0.0], [2.0], [10.0], [12.0]]),) * 5)._replace(logits=torch.zeros(4, 2))
    >>> fitted = Mahalanobis.fit(outputs, [0, 0, 1, 1])  # means 1 and 11, variance 1
    >>> fitted(outputs).round(decimals=3)
    tensor([-1., -1., -1., -1.])
    """

    means: Tensor
    """(K, D): whitened, about `centre`; only classes that were in the fit data."""
    centre: Tensor
    whitening: Tensor
    ridge: Tensor

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike, space: str = "features") -> Moments:
        """What a fit needs to know of these rows, (D, D) and (K, D) numbers; parts add up with `+`."""
        (values,) = read(outputs, choice("space", space, SPACES))
        return Moments.of(detached(values), class_numbers(labels, outputs), outputs.K)

    @classmethod
    def from_statistics(
        cls,
        statistics: Moments,
        space: str = "features",
        ridge: float = RIDGE,
        dtype: torch.dtype = torch.float32,
    ) -> "Mahalanobis":
        """The score of summed statistics, its buffers in `dtype`."""
        choice("space", space, SPACES)
        present, centre = statistics.counts > 0, statistics.mean
        turn, _, added = whiten(statistics.scatter / statistics.counts.sum(), ridge, statistics.means)
        means = (statistics.means[present] - centre) @ turn
        tensors = {"means": means, "centre": centre, "whitening": turn, "ridge": added}
        return cls({name: tensor.to(dtype) for name, tensor in tensors.items()}, space=space)

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike, space: str = "features", ridge: float = RIDGE) -> "Mahalanobis":
        """Class means and shared covariance of labelled ID data, usually those the model was trained on."""
        statistics = cls.statistics(outputs, labels, space)
        return cls.from_statistics(statistics, space, ridge, detached(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        space = str(self.settings["space"])
        (values,) = read(outputs, space)
        values = about(values, self.centre, space)
        return finite_like(-_nearest(values, self.whitening, self.means), outputs)


class RelativeMahalanobis(Fitted):
    """−(min_k d_k² − d_0²), (N,): Mahalanobis less the distance to one Gaussian around all data (Ren et al. 2021).

    What is unusual in every class alike (background, style) then counts less, which helps with near concept shift.
    """

    means: Tensor
    centre: Tensor
    whitening: Tensor
    background: Tensor
    """(D, D): the whitening of all data about their mean, which is `centre`."""
    ridge: Tensor
    """(2,): the variance added to the covariance within classes and to that of all data."""

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike) -> Moments:
        """The same sums as Mahalanobis."""
        return Mahalanobis.statistics(outputs, labels)

    @classmethod
    def from_statistics(
        cls, statistics: Moments, ridge: float = RIDGE, dtype: torch.dtype = torch.float32
    ) -> "RelativeMahalanobis":
        """The score of summed statistics, its buffers in `dtype`."""
        present, centre, total = statistics.counts > 0, statistics.mean, statistics.counts.sum()
        turn, _, within = whiten(statistics.scatter / total, ridge, statistics.means)
        background, _, around = whiten(statistics.about(centre) / total, ridge, statistics.means)
        means = (statistics.means[present] - centre) @ turn
        tensors = {"means": means, "centre": centre, "whitening": turn, "background": background}
        tensors["ridge"] = torch.stack([within, around])
        return cls({name: tensor.to(dtype) for name, tensor in tensors.items()})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike, ridge: float = RIDGE) -> "RelativeMahalanobis":
        """Class means, shared covariance and the covariance of everything, of labelled ID data."""
        return cls.from_statistics(cls.statistics(outputs, labels), ridge, detached(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (values,) = read(outputs, "features")
        values = about(values, self.centre, "features")
        nearest = _nearest(values, self.whitening, self.means)
        return finite_like(tame(values @ self.background.to(values)).square().sum(1) - nearest, outputs)


def whiten(covariance: Tensor, ridge: float, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(A, ln det Σ, added) for Σ = covariance + added · 1: x A has unit covariance, A upper triangular, in float64."""
    check_ridge(ridge)
    width = len(covariance)
    one = torch.eye(width, dtype=torch.float64, device=covariance.device)
    spread = float(covariance.diagonal().mean())
    if not math.isfinite(spread):
        raise wrong("features", "of a size whose squares are finite", "larger ones", "scale the features down")
    if spread <= rounding_of(means):
        return one, one.new_zeros(()), one.new_ones(())
    added, rounding = ridge * spread, width * torch.finfo(torch.float64).eps * spread
    while True:
        factor, failed = torch.linalg.cholesky_ex(covariance + added * one)
        # a pivot at the size of rounding passes by luck: its direction would drown all others
        if not int(failed) and float(factor.diagonal().min()) ** 2 > rounding:
            break
        added = max(10 * added, 1e-12 * spread)
    turn = torch.linalg.solve_triangular(factor, one, upper=False).T
    return turn, 2 * factor.diagonal().log().sum(), one.new_tensor(added)


def rounding_of(means: Tensor) -> float:
    """A variance no larger than this is what rounding leaves of equal samples about their mean."""
    return 1e-28 * float(means.square().mean())


def check_ridge(ridge: float) -> None:
    """A share of the mean variance, 0 or more."""
    if not 0 <= ridge < math.inf:
        raise wrong("ridge", "a finite number from 0 on", ridge, f"{RIDGE} of the mean variance is the default")


def about(values: Tensor, centre: Tensor, what: str) -> Tensor:
    """x − centre in at least float32, tamed."""
    same_width(values, len(centre), what)
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    return tame(values - centre.to(values))


def _nearest(values: Tensor, turn: Tensor, means: Tensor) -> Tensor:
    """The smallest squared distance to a mean after whitening: one product with A, then |z|² − 2 z·m + |m|²."""
    whitened, means = tame(values @ turn.to(values)), means.to(values)
    partly = means.square().sum(1) - 2 * (whitened @ means.T)
    return (whitened.square().sum(1) + partly.amin(1)).clamp_min(0)
