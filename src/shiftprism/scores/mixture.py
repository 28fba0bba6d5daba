"""A Gaussian of its own shape around each class: how likely features are under all of them."""

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism.outputs import Outputs
from shiftprism.scores._fitted import Fitted, by_rows, class_numbers, detached, finite_like
from shiftprism.scores._moments import ClassMoments
from shiftprism.scores._reading import read
from shiftprism.scores.gaussian import RIDGE, about, check_ridge, rounding_of, whiten


class GaussianMixture(Fitted):
    """ln Σ_k N(x; μ_k, Σ_k), (N,): a full covariance for each class and no class priors (the paper's GMM density, DDU).

    Σ_k divides by n_k − 1 and gets a ridge relative to its own mean variance; the buffer `ridge`, (K,), tells the
    variance that was added. A class without spread of its own (one sample, or copies of one) takes the covariance
    within all classes, and `borrowed`, (K,), says so. A class without samples is not part of the mixture.

    A class of n ≤ D/2 samples is kept by those: with R (n, D) the samples less their mean and ρ the ridge,
    L Lᵀ = ρ(n−1) 1 + R Rᵀ, U = L⁻¹R, t = U(x − μ) and e = (x − μ) − Uᵀt, the distance is |e|²/ρ + (n−1)|L⁻ᵀt|². It is
    the same number for a fraction of the work; (|x − μ|² − |t|²)/ρ would be too, but loses its digits to the small ρ.
    """

    centre: Tensor
    shifts: Tensor
    """(K₁, D): whitened means, about `centre`, of the classes with many samples; theirs are the first K₁ of K."""
    whitening: Tensor
    """(K₁, D, D): upper triangular."""
    means: Tensor
    """(K₂, D): means, about `centre`, of the classes with few samples."""
    spans: Tensor
    """(K₂, n, D): U, with rows of 0 where a class has fewer than n samples."""
    inverses: Tensor
    """(K₂, n, n): √(n−1) L⁻¹."""
    log_scale: Tensor
    """(K,): the log density at the class mean."""
    ridge: Tensor
    borrowed: Tensor
    classes: Tensor
    """(K,): the class each of these belongs to."""

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike) -> ClassMoments:
        """What a fit needs to know of these rows, at most (K, D, D) and (K, D) numbers; parts add up with `+`."""
        (values,) = read(outputs, "features")
        return ClassMoments.of(detached(values), class_numbers(labels, outputs), outputs.K)

    @classmethod
    def from_statistics(
        cls, statistics: ClassMoments, ridge: float = RIDGE, dtype: torch.dtype = torch.float32
    ) -> "GaussianMixture":
        """The score of summed statistics, its buffers in `dtype`."""
        check_ridge(ridge)
        centre, width = statistics.mean, len(statistics.mean)
        present = statistics.counts.nonzero().flatten().tolist()
        flat = [k for k in present if _variance(statistics, k) <= rounding_of(statistics.means[k])]
        few = [k for k in present if k not in flat and len(statistics.spreads[k]) < width]
        many = [k for k in present if k not in few]
        pooled = statistics.within / (statistics.counts.sum() - len(present)).clamp_min(1) if flat else centre
        whitening = centre.new_empty((len(many), width, width), dtype=dtype)
        most = max((len(statistics.spreads[k]) for k in few), default=0)
        spans = centre.new_zeros((len(few), most, width), dtype=dtype)
        inverses = centre.new_zeros((len(few), most, most), dtype=dtype)
        shifts, log_dets, ridges = [centre.new_empty(0, width)], [], []
        for number, k in enumerate(many):
            covariance = pooled if k in flat else statistics.spreads[k] / (statistics.counts[k] - 1)
            turn, log_det, added = whiten(covariance, ridge, statistics.means)
            whitening[number] = turn
            shifts.append((statistics.means[k] - centre)[None] @ turn)
            log_dets.append(log_det)
            ridges.append(added)
        for number, k in enumerate(few):
            count = len(statistics.spreads[k])
            span, inverse, log_det, added = _whiten_few(statistics.spreads[k], ridge)
            spans[number, :count], inverses[number, :count, :count] = span, inverse
            log_dets.append(log_det)
            ridges.append(added)
        tensors = {"centre": centre, "shifts": torch.cat(shifts), "whitening": whitening, "spans": spans}
        tensors |= {"means": statistics.means[few] - centre, "inverses": inverses, "ridge": torch.stack(ridges)}
        tensors["log_scale"] = -(torch.stack(log_dets) + width * math.log(2 * math.pi)) / 2
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        order = torch.tensor(many + few, device=centre.device)
        borrowed = torch.tensor([k in flat for k in many + few], device=centre.device)
        return cls(tensors | {"borrowed": borrowed, "classes": order})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike, ridge: float = RIDGE) -> "GaussianMixture":
        """Mean and covariance of each class of labelled ID data, usually those the model was trained on."""
        return cls.from_statistics(cls.statistics(outputs, labels), ridge, detached(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (values,) = read(outputs, "features")
        return finite_like(by_rows(self._log_density, about(values, self.centre, "features"), 2048), outputs)

    def _log_density(self, values: Tensor) -> Tensor:
        many, few = (
            zip(self.whitening, self.shifts, strict=True),
            zip(self.means, self.spans, self.inverses, strict=True),
        )
        rho = self.ridge[len(self.shifts) :].to(values)
        distances = [_distance(values, turn.to(values), shift.to(values)) for turn, shift in many]
        distances += [
            _distance_few(values - mean.to(values), span.to(values), inverse.to(values), rho[number])
            for number, (mean, span, inverse) in enumerate(few)
        ]
        return torch.logsumexp(self.log_scale.to(values) - torch.stack(distances, 1) / 2, 1)


def _variance(statistics: ClassMoments, k: int) -> float:
    """The mean variance of a class, whichever way its spread is kept."""
    spread, width = statistics.spreads[k], statistics.means.shape[1]
    total = spread.diagonal().sum() if len(spread) == width else spread.square().sum()
    return float(total) / (float(statistics.counts[k]) * width)


def _whiten_few(rows: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(U, √(n−1) L⁻¹, ln det Σ, added) of Σ = RᵀR/(n−1) + added · 1 for R (n, D) with n < D, in float64."""
    count, width = rows.shape
    gram = rows @ rows.T
    spread = gram.trace() / (width * (count - 1))
    # without any ridge Σ would be singular: the least that a factorisation bears
    added = max(ridge, 1e-12) * spread
    one = torch.eye(count, dtype=rows.dtype, device=rows.device)
    factor = torch.linalg.cholesky(gram + (count - 1) * added * one)
    inverse = torch.linalg.solve_triangular(factor, one, upper=False)
    log_det = 2 * factor.diagonal().log().sum() - count * math.log(count - 1) + (width - count) * added.log()
    return inverse @ rows, math.sqrt(count - 1) * inverse, log_det, added


def _distance(values: Tensor, turn: Tensor, shift: Tensor) -> Tensor:
    """|x A − shift|² for each row, in blocks of columns that skip most of the zeros below the diagonal of A."""
    width = len(turn)
    step = width if torch.compiler.is_compiling() or width < 256 else -(-width // 4)
    total = values.new_zeros(())
    for start in range(0, width, step):
        stop = min(start + step, width)
        part = torch.addmm(shift[start:stop], values[:, :stop], turn[:stop, start:stop], beta=-1)
        total = total + part.square().sum(1)
    return total


def _distance_few(values: Tensor, span: Tensor, inverse: Tensor, rho: Tensor) -> Tensor:
    along = values @ span.T
    beside = torch.addmm(values, along, span, alpha=-1)
    return beside.square().sum(1) / rho + (along @ inverse).square().sum(1)
