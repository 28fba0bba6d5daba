"""Gaussians of one shape around the classes: how far features lie from the nearest."""

import math
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import choice, wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import (
    Fitted,
    clamp_before_squaring,
    class_numbers,
    detach_float,
    finite_scores,
    subtract_centre,
)
from shiftprism.scores._moments import Moments

RIDGE = 1e-6
"""Added to the diagonal, relative to the mean variance: harmless where the covariance has full rank, and a floor for
the directions in which the fit data do not spread."""
SPACES = ("features", "logits")


class Mahalanobis(Fitted):
    """−min_k (x − μ_k)ᵀ Σ⁻¹ (x − μ_k), (N,), with one Σ for all classes (Lee et al. 2018).

    `space="logits"` reads logits in place of features, as Tian et al. do. Σ is the mean of the products about the class
    means (divided by N), plus a ridge of `ridge` times the mean variance, which grows tenfold until Σ can be factorised
    in float64; the buffer `ridge` holds the variance that was added. Data without any spread have Σ = 1 (ridge 1).

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
        (values,) = read_fields(outputs, choice("space", space, SPACES))
        return Moments.of(values.detach(), class_numbers(labels, outputs), outputs.K)

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
        tensors = _whiten_classes(statistics, ridge)
        return cls({name: tensor.to(dtype) for name, tensor in tensors.items()}, space=space)

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike, space: str = "features", ridge: float = RIDGE) -> "Mahalanobis":
        """Class means and shared covariance of labelled ID data, usually those the model was trained on."""
        statistics = cls.statistics(outputs, labels, space)
        return cls.from_statistics(statistics, space, ridge, detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        space = str(self.settings["space"])
        (values,) = read_fields(outputs, space)
        values = subtract_centre(values, self.centre, space)
        return finite_scores(-_nearest_squared(values, self.whitening, self.means), outputs)


class RelativeMahalanobis(Fitted):
    """−(min_k d_k² − d_0²), (N,): Mahalanobis less the distance to one Gaussian around all data (Ren et al. 2021).

    What is unusual in the same way for every class (background, style) then counts less, which helps with near concept
    shift.
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
        tensors = _whiten_classes(statistics, ridge)
        around = statistics.scatter_about(tensors["centre"]) / statistics.counts.sum()
        background = whiten(around, ridge, statistics.means)
        tensors |= {"background": background.matrix, "ridge": torch.stack([tensors["ridge"], background.ridge])}
        return cls({name: tensor.to(dtype) for name, tensor in tensors.items()})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike, ridge: float = RIDGE) -> "RelativeMahalanobis":
        """Class means, shared covariance and the covariance of everything, of labelled ID data."""
        return cls.from_statistics(cls.statistics(outputs, labels), ridge, detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (values,) = read_fields(outputs, "features")
        values = subtract_centre(values, self.centre)
        nearest = _nearest_squared(values, self.whitening, self.means)
        around = clamp_before_squaring(values @ self.background.to(values)).square().sum(1)
        return finite_scores(around - nearest, outputs)


class Whitening(NamedTuple):
    """x ↦ x A, which gives data of covariance Σ = covariance + ridge · 1 unit covariance."""

    matrix: Tensor
    """A, (D, D): upper triangular, in float64."""
    log_det: Tensor
    """ln det Σ."""
    ridge: Tensor
    """The variance that was added to the diagonal."""


def whiten(covariance: Tensor, ridge: float, means: Tensor) -> Whitening:
    """The whitening of a covariance with `ridge` times its mean variance added, or more if that is singular.

    `means` tell what size of variance is only rounding: data without any spread get Σ = 1.
    """
    check_ridge(ridge)
    width = len(covariance)
    identity = torch.eye(width, dtype=torch.float64, device=covariance.device)
    variance = float(covariance.diagonal().mean())
    if not math.isfinite(variance):
        raise wrong("features", "of a size whose squares are finite", "larger ones", "scale the features down")
    if variance <= rounding_variance(means):
        return Whitening(identity, identity.new_zeros(()), identity.new_ones(()))
    added, rounding = ridge * variance, width * torch.finfo(torch.float64).eps * variance
    while True:
        factor, failed = torch.linalg.cholesky_ex(covariance + added * identity)
        # A pivot no larger than rounding succeeds by chance, and its direction would outweigh all others.
        if not int(failed) and float(factor.diagonal().min()) ** 2 > rounding:
            break
        added = max(10 * added, 1e-12 * variance)
    # Σ = L Lᵀ, so A = L⁻ᵀ: then Aᵀ Σ A = 1
    matrix = torch.linalg.solve_triangular(factor, identity, upper=False).T
    return Whitening(matrix, 2 * factor.diagonal().log().sum(), identity.new_tensor(added))


def rounding_variance(means: Tensor) -> float:
    """The largest variance that rounding alone can leave of equal samples about their mean: (1e-14 · size)²."""
    return 1e-28 * float(means.square().mean())


def check_ridge(ridge: float) -> None:
    """Refuse what is not a share of the mean variance, 0 or more."""
    if not 0 <= ridge < math.inf:
        raise wrong("ridge", "a finite number from 0 on", ridge, f"{RIDGE} of the mean variance is the default")


def _whiten_classes(statistics: Moments, ridge: float) -> dict[str, Tensor]:
    """The centre of all data, the whitening within classes, and the whitened means of the classes that have samples."""
    centre = statistics.mean
    within = whiten(statistics.scatter / statistics.counts.sum(), ridge, statistics.means)
    means = (statistics.means[statistics.counts > 0] - centre) @ within.matrix
    return {"means": means, "centre": centre, "whitening": within.matrix, "ridge": within.ridge}


def _nearest_squared(values: Tensor, whitening: Tensor, means: Tensor) -> Tensor:
    """The smallest squared distance to a mean after whitening: one product with A, then |z|² − 2 z·m + |m|²."""
    whitened, means = clamp_before_squaring(values @ whitening.to(values)), means.to(values)
    # |z|² is the same for all means, so the minimum is taken without it
    partly = means.square().sum(1) - 2 * (whitened @ means.T)
    return (whitened.square().sum(1) + partly.amin(1)).clamp_min(0)
