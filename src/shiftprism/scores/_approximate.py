"""The distance to the k-th nearest of a large bank, found approximately with faiss (extra `faiss`)."""

import math
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._extras import need
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, check_width
from shiftprism.scores._neighbours import choose_k, directions, draw_rows, gather_directions

_BANK = 1_000_000
_PER_LIST = 39
"""Fewer rows for each list are too few to place its centroid, says faiss."""
_TRAINED_ON = 64
"""Rows for each list that the centroids are found from: more do not help, says faiss."""
_QUERIES = 4096
"""Rows that are searched at a time."""


class ApproximateKNN(Fitted):
    """−|z − z₍ₖ₎| as by `KNN`, (N,), where only a part of a large bank is searched for each input.

    The bank is divided into `lists`, each of the rows that are nearest to its centroid (faiss's IndexIVFFlat). An input
    is compared with the rows of the `probes` lists whose centroids are nearest to it, so the k-th distance found is
    never smaller than the true one; with probes = lists it is the true one. The default is 4 √bank lists.

    It is for banks that `KNN` is slow with, from some 100,000 rows on: docs/scale.md has recall and speed. It computes
    in float32 on the CPU, and it is not exported. Saved are the bank and the centroids; the index is made of them again
    at the first call, and takes as much memory as the bank.
    """

    bank: Tensor
    centroids: Tensor
    """(lists, D)."""

    @classmethod
    def fit(
        cls,
        outputs: Outputs,
        labels: ArrayLike | None = None,
        k: int | None = None,
        bank: int = _BANK,
        lists: int | None = None,
        probes: int = 32,
        seed: int = 0,
    ) -> "ApproximateKNN":
        """Keep the directions of ID features, a random part of more than `bank`; labels are not needed."""
        (features,) = read_fields(outputs, "features")
        rows = draw_rows(outputs.N, bank, seed)
        lists = _choose_lists(lists, len(rows))
        if not isinstance(probes, int) or probes < 1:
            raise wrong("probes", "a positive whole number", probes, "32 lists are searched by default")
        kept = gather_directions(features, rows).to("cpu", torch.float32)
        centroids = _find_centroids(kept, lists, seed)
        k = choose_k(k, 50, len(rows), outputs.K)
        return cls({"bank": kept, "centroids": centroids}, k=k, probes=min(probes, lists))

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read_fields(outputs, "features")
        check_width(features, self.bank.shape[1])
        index = self._open_index()
        k = int(self.settings["k"])
        found = []
        for part in features.detach().split(_QUERIES):
            products, _ = index.search(directions(part).to("cpu", torch.float32).numpy(), k)
            found.append(torch.from_numpy(products[:, -1].copy()))
        # where the lists hold fewer than k rows faiss gives the lowest number: the distance is then 2, the largest
        distances = (2 - 2 * torch.cat(found).clamp_min(-1)).clamp_min(0).sqrt()
        return -distances.to(outputs[4])

    def _open_index(self) -> Any:
        faiss = need("faiss", "faiss")
        faiss.omp_set_num_threads(torch.get_num_threads())
        if self.__dict__.get("_index") is None:
            self.__dict__["_index"] = _build_index(self.bank, self.centroids)
        index = self.__dict__["_index"]
        index.nprobe = int(self.settings["probes"])
        return index

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy: without the index, which is no Python object and is made again."""
        return {name: value for name, value in self.__dict__.items() if name != "_index"}


def _choose_lists(lists: int | None, rows: int) -> int:
    if lists is None:
        return max(1, min(round(4 * math.sqrt(rows)), rows // _PER_LIST))
    if not isinstance(lists, int) or not 1 <= lists <= rows:
        raise wrong("lists", f"a whole number from 1 to {rows}, the size of the bank,", lists, "leave it out")
    return lists


def _find_centroids(bank: Tensor, lists: int, seed: int) -> Tensor:
    """The centroids of k-means over a random part of the bank, (lists, D), of length 1."""
    faiss = need("faiss", "faiss")
    faiss.omp_set_num_threads(torch.get_num_threads())
    some = bank[draw_rows(len(bank), _TRAINED_ON * lists, seed)].numpy()
    # one row for each list is enough for k-means; faiss would print a warning below 39
    means = faiss.Kmeans(bank.shape[1], lists, niter=10, seed=seed, spherical=True, min_points_per_centroid=1)
    means.train(some)
    return torch.from_numpy(means.centroids.copy())


def _build_index(bank: Tensor, centroids: Tensor) -> Any:
    faiss = need("faiss", "faiss")
    lists, width = centroids.shape
    nearest = faiss.IndexFlatIP(width)
    nearest.add(centroids.to("cpu", torch.float32).numpy())
    index = faiss.IndexIVFFlat(nearest, width, lists, faiss.METRIC_INNER_PRODUCT)
    for part in bank.split(_QUERIES):
        index.add(part.to("cpu", torch.float32).numpy())
    return index
