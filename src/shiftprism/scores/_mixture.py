"""A Gaussian of its own shape around each class: how likely features are under all of them."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, class_numbers, detach_float, finite_scores, map_rows, subtract_centre
from shiftprism.scores._gaussian import RIDGE, check_ridge, rounding_variance, whiten
from shiftprism.scores._moments import ClassMoments


class GaussianMixture(Fitted):
    """ln Σ_k N(x; μ_k, Σ_k), (N,): a full covariance for each class and no class priors (the paper's GMM density, DDU).

    Σ_k divides by n_k − 1 and gets a ridge relative to its own mean variance; the buffer `ridge`, (K,), holds the
    variance that was added. A class without spread of its own (one sample, or copies of one) takes the covariance
    within all classes, and is True in `borrowed`, (K,). A class without samples is not part of the mixture.

    The classes are kept in one of two forms, the K₁ classes with many samples first:

    - many samples: the matrix A_k that whitens Σ_k, with the squared distance |x A_k − μ_k A_k|².
    - few, n ≤ D/2: Σ_k is then a ridge plus a matrix of rank n, so matrices of n × D and n × n are enough. With R
      (n, D) the samples less their mean, ρ the ridge, L Lᵀ = ρ(n−1) 1 + R Rᵀ and U = L⁻¹R, let t = U(x − μ) and
      e = (x − μ) − Uᵀt. The squared distance is |e|²/ρ + (n−1)|L⁻ᵀt|²: the same number for a fraction of the work.
      (|x − μ|² − |t|²)/ρ equals it on paper, but its difference loses all digits where ρ is small.
    """

    centre: Tensor
    shifts: Tensor
    """(K₁, D): whitened means, about `centre`, of the classes with many samples."""
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
        (values,) = read_fields(outputs, "features")
        return ClassMoments.of(values.detach(), class_numbers(labels, outputs), outputs.K)

    @classmethod
    def from_statistics(
        cls, statistics: ClassMoments, ridge: float = RIDGE, dtype: torch.dtype = torch.float32
    ) -> "GaussianMixture":
        """The score of summed statistics, its buffers in `dtype`."""
        check_ridge(ridge)
        centre, groups = statistics.mean, _group_classes(statistics)
        tensors, facts = _whiten_many(statistics, groups, ridge, dtype)
        for_few, facts_of_few = _whiten_few(statistics, groups.few, ridge, dtype)
        log_dets, ridges = (torch.stack(column) for column in zip(*facts, *facts_of_few, strict=True))
        tensors |= {**for_few, "centre": centre, "ridge": ridges}
        # ln N(μ; μ, Σ) = −(ln det Σ + D ln 2π)/2
        tensors["log_scale"] = -(log_dets + len(centre) * math.log(2 * math.pi)) / 2
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        order = groups.many + groups.few
        tensors["classes"] = torch.tensor(order, device=centre.device)
        tensors["borrowed"] = torch.tensor([k in groups.flat for k in order], device=centre.device)
        return cls(tensors)

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike, ridge: float = RIDGE) -> "GaussianMixture":
        """Mean and covariance of each class of labelled ID data, usually those the model was trained on.

        The classes are read one after another: beside the score itself, the spread of one class and rows of at most
        512 MB are in memory.
        """
        (values,) = read_fields(outputs, "features")
        statistics = ClassMoments.read(values.detach(), class_numbers(labels, outputs), outputs.K)
        return cls.from_statistics(statistics, ridge, detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (values,) = read_fields(outputs, "features")
        values = subtract_centre(values, self.centre)
        return finite_scores(map_rows(self._log_density, values, 2048), outputs)

    def _log_density(self, values: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or values.requires_grad:
            distances = torch.stack(list(self._distances(values)), 1)
        else:
            # Written where they stay. Small tensors that stay, between large ones that do not, would fragment the
            # memory: gigabytes for a thousand classes.
            distances = values.new_empty(len(values), len(self.classes))
            for number, distance in enumerate(self._distances(values)):
                distances[:, number] = distance
        return torch.logsumexp(self.log_scale.to(values) - distances / 2, 1)

    def _distances(self, values: Tensor) -> Iterator[Tensor]:
        """(N,) for each class: the squared distance."""
        for matrix, shift in zip(self.whitening, self.shifts, strict=True):
            yield _distance_many(values, matrix.to(values), shift.to(values))
        few = zip(self.means, self.spans, self.inverses, self.ridge[len(self.shifts) :], strict=True)
        for mean, span, inverse, ridge in few:
            yield _distance_few(values - mean.to(values), span.to(values), inverse.to(values), ridge.to(values))


class _Groups(NamedTuple):
    """The classes that have samples, by the form they are kept in."""

    many: list[int]
    few: list[int]
    flat: set[int]
    """Those of `many` without spread of their own: their covariance is that within all classes."""


Facts = list[tuple[Tensor, Tensor]]
"""(ln det Σ, the variance added) for each class."""


def _group_classes(statistics: ClassMoments) -> _Groups:
    width = len(statistics.mean)
    present = statistics.counts.nonzero().flatten().tolist()
    variances = statistics.variances.tolist()
    flat = {k for k in present if variances[k] <= rounding_variance(statistics.means[k])}
    few = [k for k in present if k not in flat and 2 * statistics.counts[k] <= width]
    return _Groups([k for k in present if k not in few], few, flat)


def _whiten_many(
    statistics: ClassMoments, groups: _Groups, ridge: float, dtype: torch.dtype
) -> tuple[dict[str, Tensor], Facts]:
    """`whitening` and `shifts` of the classes with many samples."""
    centre, counts = statistics.mean, statistics.counts
    present = len(groups.many) + len(groups.few)
    # the covariance within all classes is a pass over them, which only classes without spread need
    pooled = statistics.within / (counts.sum() - present).clamp_min(1) if groups.flat else centre
    # in `dtype` from the start: a list of K₁ matrices in float64 would triple the memory
    whitening = centre.new_empty((len(groups.many), len(centre), len(centre)), dtype=dtype)
    shifts, facts = [centre.new_empty(0, len(centre))], []
    for number, k in enumerate(groups.many):
        covariance = pooled if k in groups.flat else statistics.spreads[k] / (counts[k] - 1)
        whitened = whiten(covariance, ridge, statistics.means)
        whitening[number] = whitened.matrix
        shifts.append((statistics.means[k] - centre)[None] @ whitened.matrix)
        facts.append((whitened.log_det, whitened.ridge))
    return {"whitening": whitening, "shifts": torch.cat(shifts)}, facts


def _whiten_few(
    statistics: ClassMoments, few: list[int], ridge: float, dtype: torch.dtype
) -> tuple[dict[str, Tensor], Facts]:
    """`means`, `spans` and `inverses` of the classes with few samples, padded with 0 to the largest n."""
    centre = statistics.mean
    most = max((int(statistics.counts[k]) for k in few), default=0)
    spans = centre.new_zeros((len(few), most, len(centre)), dtype=dtype)
    inverses = centre.new_zeros((len(few), most, most), dtype=dtype)
    facts = []
    for number, k in enumerate(few):
        rows = statistics.spreads[k]
        span, inverse, log_det, added = _whiten_rows(rows, ridge)
        n = len(rows)
        spans[number, :n], inverses[number, :n, :n] = span, inverse
        facts.append((log_det, added))
    return {"means": statistics.means[few] - centre, "spans": spans, "inverses": inverses}, facts


def _whiten_rows(rows: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(U, √(n−1) L⁻¹, ln det Σ, ρ) of Σ = RᵀR/(n−1) + ρ · 1 for R (n, D) with n < D, in float64."""
    n, width = rows.shape
    gram = rows @ rows.T
    variance = gram.trace() / (width * (n - 1))
    # without any ridge Σ would be singular: this is the least with which it can be factorised
    added = max(ridge, 1e-12) * variance
    identity = torch.eye(n, dtype=rows.dtype, device=rows.device)
    factor = torch.linalg.cholesky(gram + (n - 1) * added * identity)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
    # Σ has n eigenvalues of L Lᵀ/(n−1), and ρ for the D − n directions without samples
    log_det = 2 * factor.diagonal().log().sum() - n * math.log(n - 1) + (width - n) * added.log()
    return inverse @ rows, math.sqrt(n - 1) * inverse, log_det, added


def _distance_many(values: Tensor, whitening: Tensor, shift: Tensor) -> Tensor:
    """|x A − shift|² for each row, in blocks of columns that skip most of the zeros below the diagonal of A."""
    width = len(whitening)
    # four blocks save three eighths of the work; below 256 features the extra calls cost more than they save
    step = width if torch.compiler.is_compiling() or width < 256 else -(-width // 4)
    total = values.new_zeros(())
    for start in range(0, width, step):
        stop = min(start + step, width)
        part = torch.addmm(shift[start:stop], values[:, :stop], whitening[:stop, start:stop], beta=-1)
        total = total + part.square().sum(1)
    return total


def _distance_few(values: Tensor, span: Tensor, inverse: Tensor, ridge: Tensor) -> Tensor:
    """|e|²/ρ + (n−1)|L⁻ᵀt|² for each row x − μ; t and e as in the docstring of the class."""
    along = values @ span.T
    beside = torch.addmm(values, along, span, alpha=-1)
    return beside.square().sum(1) / ridge + (along @ inverse).square().sum(1)
