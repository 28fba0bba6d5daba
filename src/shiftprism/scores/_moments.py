"""Sums over data that add up: parts of a data set, or of a cluster, merge to the statistics of the whole.

Everything is accumulated in float64 from chunks of rows, so the memory for it never grows with N.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from shiftprism._checks import wrong

CHUNK = 2048
"""Rows converted to float64 at a time."""
GATHERED = 1 << 27
"""Numbers of several classes that are read at a time: 512 MB in float32."""


@dataclass(frozen=True)
class Sums:
    """Counts (K,) and sums (K, D) by class; `+` adds them."""

    counts: Tensor
    sums: Tensor

    @staticmethod
    def of(values: Tensor, labels: Tensor | None = None, classes: int = 1) -> "Sums":
        """The sums of `values` (N, D) over each class; without labels all rows are one class."""
        labels = _one_class(values) if labels is None else labels
        counts = torch.bincount(labels, minlength=classes).double()
        sums = torch.zeros(classes, values.shape[1], dtype=torch.float64, device=values.device)
        for rows, chunk in _chunks(values):
            sums.index_add_(0, labels[rows], chunk)
        return Sums(counts, sums)

    @property
    def means(self) -> Tensor:
        """(K, D), 0 for a class without samples."""
        return self.sums / self.counts.clamp_min(1)[:, None]

    def __add__(self, other: "Sums") -> "Sums":
        _check_same_shape(self.sums, other.sums)
        return Sums(self.counts + other.counts, self.sums + other.sums)

    def __radd__(self, other: int) -> "Sums":
        return self  # the built-in sum() starts with 0 + the first part


@dataclass(frozen=True)
class Moments:
    """Counts (K,), means (K, D) and the scatter Σ (x − μ_k)(x − μ_k)ᵀ over all classes, (D, D).

    `+` merges two of them by Chan's rule, in which δ = μ_b − μ_a adds n_a n_b / (n_a + n_b) δδᵀ. Sums of squares about
    0 would be simpler, but large means would cost them their digits.
    """

    counts: Tensor
    means: Tensor
    scatter: Tensor

    @staticmethod
    def of(values: Tensor, labels: Tensor | None = None, classes: int = 1) -> "Moments":
        """Two passes over `values` (N, D): the means first, then the products about them."""
        labels = _one_class(values) if labels is None else labels
        sums = Sums.of(values, labels, classes)
        means = sums.means
        scatter = means.new_zeros(means.shape[1], means.shape[1])
        for rows, chunk in _chunks(values):
            chunk -= means[labels[rows]]
            scatter += _products(chunk)
        return Moments(sums.counts, means, scatter)

    @property
    def mean(self) -> Tensor:
        """(D,): the mean of all samples."""
        return self.counts @ self.means / self.counts.sum()

    def scatter_about(self, point: Tensor) -> Tensor:
        """(D, D): Σ (x − point)(x − point)ᵀ over all samples: the scatter within classes and that of their means."""
        offsets = self.means - point
        return self.scatter + (self.counts[:, None] * offsets).T @ offsets

    def __add__(self, other: "Moments") -> "Moments":
        _check_same_shape(self.means, other.means)
        share, delta = other.counts / (self.counts + other.counts).clamp_min(1), other.means - self.means
        # n_a · share is n_a n_b / (n_a + n_b), and 0 for a class that neither part has
        between = ((self.counts * share)[:, None] * delta).T @ delta
        means = self.means + share[:, None] * delta
        return Moments(self.counts + other.counts, means, self.scatter + other.scatter + between)

    def __radd__(self, other: int) -> "Moments":
        return self


@dataclass(frozen=True)
class ClassMoments:
    """Counts (K,), means (K, D) and for each class either its scatter, (D, D), or its samples less their mean, (n, D).

    A class of 2n ≤ D samples keeps the samples: they are fewer numbers than the scatter, and cheaper to work with. So
    the whole never takes more than K · D² numbers. `+` merges by Chan's rule.
    """

    counts: Tensor
    means: Tensor
    spreads: Sequence[Tensor]
    """One for each class; n ≤ D/2 tells the samples (n, D) from a scatter (D, D)."""

    @staticmethod
    def of(values: Tensor, labels: Tensor, classes: int) -> "ClassMoments":
        """Two passes over `values` (N, D): the means first, then the samples or products about them."""
        read = ClassMoments.read(values, labels, classes)
        width = read.means.shape[1]
        # One block for all scatters: allocated one by one between chunks, they would fragment the memory.
        block = iter(read.means.new_empty(int((2 * read.counts > width).sum()), width, width))
        spreads = [next(block).copy_(spread) if len(spread) == width else spread for spread in read.spreads]
        return ClassMoments(read.counts, read.means, tuple(spreads))

    @staticmethod
    def read(values: Tensor, labels: Tensor, classes: int) -> "ClassMoments":
        """The same, but the spread of a class is computed of its rows each time it is asked for.

        So no more than one spread is in memory, and rows of at most 512 MB; `values` may be mapped. The spreads of a
        thousand classes of 2,048 features would take 32 GB.
        """
        sums = Sums.of(values, labels, classes)
        return ClassMoments(sums.counts, sums.means, _Spreads(values, labels, sums))

    @property
    def mean(self) -> Tensor:
        """(D,): the mean of all samples."""
        return self.counts @ self.means / self.counts.sum()

    @property
    def variances(self) -> Tensor:
        """(K,): the variance of each class, averaged over features; 0 for a class without samples."""
        if isinstance(self.spreads, _Spreads):
            squares = self.spreads.squares
        else:
            squares = torch.stack([_trace(spread) for spread in self.spreads])
        return squares / (self.counts.clamp_min(1) * self.means.shape[1])

    @property
    def within(self) -> Tensor:
        """(D, D): the scatter about the class means, over all classes."""
        total = self.means.new_zeros(self.means.shape[1], self.means.shape[1])
        for spread in self.spreads:
            total += _scatter(spread)
        return total

    def __add__(self, other: "ClassMoments") -> "ClassMoments":
        _check_same_shape(self.means, other.means)
        counts = self.counts + other.counts
        share, delta = other.counts / counts.clamp_min(1), other.means - self.means
        means = self.means + share[:, None] * delta
        merged = []
        for k, (left, right) in enumerate(zip(self.spreads, other.spreads, strict=True)):
            if 2 * counts[k] <= means.shape[1]:
                # still few: the samples of both, taken from their own means to the common one
                merged.append(torch.cat([left + self.means[k] - means[k], right + other.means[k] - means[k]]))
            else:
                between = float(self.counts[k] * share[k]) * torch.outer(delta[k], delta[k])
                merged.append(_scatter(left) + _scatter(right) + between)
        return ClassMoments(counts, means, tuple(merged))

    def __radd__(self, other: int) -> "ClassMoments":
        return self


class _Spreads(Sequence[Tensor]):
    """The spread of each class, computed of its rows when it is asked for.

    Rows of some classes are gathered at a time, in the order they have in `values`. A class alone would take single
    rows from everywhere, and of a mapped file each of them brings a hundred times as much from the disk.
    """

    def __init__(self, values: Tensor, labels: Tensor, sums: Sums) -> None:
        self._values, self._labels, self._means = values, labels, sums.means
        self._members = labels.argsort(stable=True).split(sums.counts.long().tolist())
        self._gathered: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, k: int) -> Tensor: ...
    @overload
    def __getitem__(self, k: slice) -> list[Tensor]: ...
    def __getitem__(self, k: int | slice) -> Tensor | list[Tensor]:
        if isinstance(k, slice):
            return [self[each] for each in range(*k.indices(len(self)))]
        if k >= len(self):
            raise IndexError(k)  # which ends a loop
        rows, mean = self._members[k], self._means[k]
        if 2 * len(rows) <= len(mean):
            return torch.cat([part.double() for part in self._read(k)]).sub_(mean)
        scatter = mean.new_zeros(len(mean), len(mean))
        for part in self._read(k):
            scatter += _products(part.double() - mean)  # not in place: the rows may be read again
        return scatter

    @property
    def squares(self) -> Tensor:
        """(K,): the sum of squared distances to the class mean, from one pass."""
        total = self._means.new_zeros(len(self))
        for rows, chunk in _chunks(self._values):
            labels = self._labels[rows]
            total.index_add_(0, labels, chunk.sub_(self._means[labels]).square_().sum(1))
        return total

    def _read(self, k: int) -> Iterator[Tensor]:
        """The rows of a class, some at a time; at least one part."""
        rows, width = self._members[k], self._values.shape[1]
        if len(rows) * width > GATHERED:
            yield from (self._values[part] for part in rows.split(CHUNK))
            return
        if k not in self._gathered:
            self._gather(k)
        yield from self._gathered[k].split(CHUNK)

    def _gather(self, k: int) -> None:
        """The rows of this class and of those after it, as many as fit."""
        self._gathered.clear()
        width = self._values.shape[1]
        last, count = k + 1, len(self._members[k])
        while last < len(self) and (count + len(self._members[last])) * width <= GATHERED:
            count += len(self._members[last])
            last += 1
        members = self._members[k:last]
        rows, places = torch.cat(members).sort()
        found = self._values.new_empty(count, width)
        for part, place in zip(rows.split(CHUNK), places.split(CHUNK), strict=True):
            found[place] = self._values[part]
        self._gathered.update(enumerate(found.split([len(one) for one in members]), start=k))


def _trace(spread: Tensor) -> Tensor:
    """The sum of squared distances to the class mean, whichever way a spread is kept."""
    return spread.diagonal().sum() if len(spread) == spread.shape[1] else spread.square().sum()


def _scatter(spread: Tensor) -> Tensor:
    """The scatter of a class, whichever way its spread is kept."""
    return spread if len(spread) == spread.shape[1] else _products(spread)


def _products(rows: Tensor) -> Tensor:
    """XᵀX, (D, D), for rows (n, D) without a gradient."""
    if rows.device.type != "cpu":
        return rows.T @ rows
    # NumPy computes one triangle of a matrix times its own transpose and copies the other: half the time of torch.
    return torch.from_numpy(rows.numpy().T @ rows.numpy())


def _one_class(values: Tensor) -> Tensor:
    return torch.zeros(len(values), dtype=torch.int64, device=values.device)


def _chunks(values: Tensor) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(values), CHUNK):
        rows = slice(start, start + CHUNK)
        yield rows, values[rows].to(torch.float64, copy=True)  # a copy: the caller subtracts in place


def _check_same_shape(left: Tensor, right: Tensor) -> None:
    if left.shape != right.shape:
        got = f"shapes {tuple(left.shape)} and {tuple(right.shape)}"
        raise wrong("statistics", "of one model and one score", got, "add what the same `statistics` made")
