"""Scores that read the class weights themselves: angles to them, and distances to the boundaries between them."""

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism.heads import norm
from shiftprism.outputs import Outputs
from shiftprism.scores._fitted import Fitted, check_linear, class_weights, detached, finite_like, same_width, tame
from shiftprism.scores._moments import Sums
from shiftprism.scores._reading import read
from shiftprism.scores.neighbours import unit


def max_cosine(outputs: Outputs, head: Any) -> Tensor:
    """max_k cos(f, w_k), (N,), for any head with class weights (Techapanurak et al. 2020 for cosine heads).

    >>> from shiftprism.heads import Linear
    >>> head = Linear(2, 3)
    >>> bool(max_cosine(head.outputs(torch.ones(1, 2)), head) <= 1)
    True
    """
    (features,) = read(outputs, "features")
    directions = unit(features)
    weight, _ = class_weights(head, outputs.D, directions)
    return finite_like((directions @ unit(weight).T).amax(1), outputs)


class FDBD(Fitted):
    """mean_{k≠ŷ} (l_ŷ − l_k) / |w_ŷ − w_k| / |f − μ|, (N,) (Liu & Qin 2024, fDBD).

    The mean distance of f to the boundaries of the class predicted, relative to its distance from the mean ID feature.
    Classes with equal weights have no boundary and are left out; with one class alone the score is 0.
    """

    mean: Tensor
    gaps: Tensor
    """(K, K): 1 / |w_i − w_k|, 0 where the two are equal, divided by the number of others."""

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike | None = None) -> Sums:
        """What a fit needs to know of these rows, D numbers; parts add up with `+`. Labels are not needed."""
        (features,) = read(outputs, "features")
        together = torch.zeros(outputs.N, dtype=torch.int64, device=features.device)
        return Sums.of(detached(features), together, 1)

    @classmethod
    def from_statistics(cls, statistics: Sums, head: Any, dtype: torch.dtype = torch.float32) -> "FDBD":
        """The score of summed statistics, its buffers in `dtype`."""
        weight, _ = class_weights(head, statistics.sums.shape[1], statistics.sums)
        apart = torch.stack([norm(weight - one) for one in weight])
        gaps = torch.where(apart > 0, 1 / apart, 0.0) / max(len(weight) - 1, 1)
        return cls({"mean": statistics.means[0].to(dtype), "gaps": gaps.to(dtype)})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike | None = None, *, head: Any) -> "FDBD":
        """The mean of ID features; labels are not needed."""
        statistics = cls.statistics(outputs, labels)
        check_linear(head, outputs)
        return cls.from_statistics(statistics, head, detached(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        features, raw = read(outputs, "features", "raw")
        same_width(features, len(self.mean))
        features, raw = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in (features, raw))
        top = raw.max(1)
        depth = ((top.values[:, None] - raw) * self.gaps.to(raw)[top.indices]).sum(1)
        away = norm(tame(features - self.mean.to(features)))
        return finite_like(depth / away.clamp_min(torch.finfo(away.dtype).tiny), outputs)
