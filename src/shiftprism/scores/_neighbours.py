"""Scores that keep a bank of ID features and search it for the nearest to an input."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.heads import norm
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, check_width, detach_float, finite_scores, map_rows, widen
from shiftprism.scores._logits import energy
from shiftprism.scores._moments import CHUNK

BANK = 50_000
"""The most rows a bank keeps by default: all of CIFAR's training set, 100 MB at 512 features."""


_GROUP = 64


class KNN(Fitted):
    """−|z − z₍ₖ₎|, (N,): the distance to the k-th nearest of the ID features, all of length 1 (Sun et al. 2022).

    k is 50 by default, or half a class's share of the bank where that is less: a k-th neighbour from another class says
    nothing about the input. Of more than `bank` samples, a random part is kept.

    >>> outputs = Outputs(*(torch.eye(3),) * 5)
    >>> KNN.fit(outputs, k=1)(outputs._replace(features=torch.tensor([[5.0, 0.0, 0.0], [1.0, 1.0, 0.0]])))
    tensor([-0.0000, -0.7654])
    """

    bank: Tensor

    @classmethod
    def fit(
        cls, outputs: Outputs, labels: ArrayLike | None = None, k: int | None = None, bank: int = BANK, seed: int = 0
    ) -> "KNN":
        """Keep the directions of ID features; labels are not needed."""
        (features,) = read_fields(outputs, "features")
        rows = draw_rows(outputs.N, bank, seed)
        return cls({"bank": gather_directions(features, rows)}, k=choose_k(k, 50, len(rows), outputs.K))

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read_fields(outputs, "features")
        return finite_scores(-kth_distance(features, self.bank, int(self.settings["k"])), outputs)


class NNGuide(Fitted):
    """energy(x) · mean over the k largest of energy(xᵢ) cos(f, fᵢ), (N,) (Park et al. 2023).

    The bank holds ID directions scaled by their own energy. Of more than `bank` samples, a random part is kept.
    """

    bank: Tensor

    @classmethod
    def fit(
        cls, outputs: Outputs, labels: ArrayLike | None = None, k: int | None = None, bank: int = BANK, seed: int = 0
    ) -> "NNGuide":
        """Keep ID features with their energies; labels are not needed. k is 10 by default, or less as for KNN."""
        read_fields(outputs, "features", "logits")
        kept = outputs.rows(draw_rows(outputs.N, bank, seed))
        scaled = directions(detach_float(kept.features)) * energy(kept).detach()[:, None]
        return cls({"bank": scaled}, k=choose_k(k, 10, kept.N, outputs.K))

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read_fields(outputs, "features")
        guidance = largest_products(features, self.bank, int(self.settings["k"])).mean(1)
        return finite_scores(guidance * energy(outputs), outputs)


def directions(features: Tensor) -> Tensor:
    """f / |f| in at least float32, and 0 for f = 0."""
    features = widen(features)
    return features / norm(features).clamp_min(torch.finfo(features.dtype).tiny)[:, None]


def gather_directions(features: Tensor, rows: Tensor) -> Tensor:
    """The directions of some rows, (n, D) in at least float32; in chunks, so that one copy is in memory."""
    chunks = rows.split(CHUNK)
    found = detach_float(features[:0]).new_empty(len(rows), features.shape[1])
    for chunk, place in zip(chunks, found.split(CHUNK), strict=True):
        place.copy_(directions(detach_float(features[chunk])))
    return found


def draw_rows(rows: int, most: int, seed: int) -> Tensor:
    """`most` row numbers, drawn without replacement and sorted; all of them where there are no more."""
    if not isinstance(most, int) or most < 1:
        raise wrong("bank", "a positive whole number", most, f"{BANK} rows are the default")
    if rows <= most:
        return torch.arange(rows)
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def kth_distance(features: Tensor, bank: Tensor, k: int) -> Tensor:
    """The distance of each direction to the k-th nearest of the bank, (N,): |a − b|² = 2 − 2 a·b for unit vectors."""
    return (2 - 2 * largest_products(features, bank, k)[:, -1]).clamp_min(0).sqrt()


def largest_products(features: Tensor, bank: Tensor, k: int) -> Tensor:
    """The k largest inner products of each direction with the bank, (N, k), largest first; in chunks of rows."""
    check_width(features, bank.shape[1])
    columns = bank.to(widen(features[:0])).T
    rows = max(1, 2**24 // len(bank))  # 64 MB of products in float32
    if torch.compiler.is_compiling() or features.requires_grad:
        return map_rows(lambda part: _largest(directions(part) @ columns, k), features, rows)
    # fresh memory for the products would cost a quarter as much as they do
    products = columns.new_empty(min(rows, len(features)), len(bank))

    def search(part: Tensor) -> Tensor:
        return _largest(torch.mm(directions(part), columns, out=products[: len(part)]), k)

    return map_rows(search, features, rows)


def _largest(products: Tensor, k: int) -> Tensor:
    """The k largest of each row, (N, k), largest first; of long rows by way of the k groups with the largest maxima.

    No other group can hold one of the k largest: k numbers that are no smaller lie in those groups.
    """
    groups = products.shape[1] // _GROUP
    if groups < 4 * k:
        return products.topk(k).values
    whole, rest = products.split([groups * _GROUP, products.shape[1] - groups * _GROUP], 1)
    grouped = whole.unflatten(1, (groups, _GROUP))
    chosen = grouped.amax(2).topk(k, sorted=False).indices[:, :, None].expand(-1, -1, _GROUP)
    return torch.cat([grouped.gather(1, chosen).flatten(1), rest], 1).topk(k).values


def choose_k(k: int | None, usual: int, bank: int, classes: int) -> int:
    """The given k, or the usual one but no more than half of a class's share of the bank."""
    if k is None:
        return min(usual, max(1, bank // (2 * classes)))
    if not isinstance(k, int) or not 1 <= k <= bank:
        raise wrong("k", f"a whole number from 1 to {bank}, the size of the bank,", k, "leave it out for the usual one")
    return k
