"""Scores that read the class weights themselves: angles to them, and distances to the boundaries between them."""

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism.heads import check_linear, class_weights, norm
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, detach_float, finite_scores, subtract_centre, widen
from shiftprism.scores._moments import Sums
from shiftprism.scores._neighbours import directions


def max_cosine(outputs: Outputs, head: Any) -> Tensor:
    """max_k cos(f, w_k), (N,), for any head with class weights (Techapanurak et al. 2020 for cosine heads).

    >>> from shiftprism.heads import Linear
    >>> head = Linear(2, 3)
    >>> bool(max_cosine(head.outputs(torch.ones(1, 2)), head) <= 1)
    True
    """
    (features,) = read_fields(outputs, "features")
    unit = directions(features)
    weight, _ = class_weights(head, outputs.D, unit)
    return finite_scores((unit @ directions(weight).T).amax(1), outputs)


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
        (features,) = read_fields(outputs, "features")
        return Sums.of(features.detach())

    @classmethod
    def from_statistics(cls, statistics: Sums, head: Any, dtype: torch.dtype = torch.float32) -> "FDBD":
        """The score of summed statistics, its buffers in `dtype`."""
        weight, _ = class_weights(head, statistics.sums.shape[1], statistics.sums)
        # not by products, which lose the digits of small distances; nor all differences at once, (K, K, D) numbers
        distances = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
        gaps = torch.where(distances > 0, 1 / distances, 0.0) / max(len(weight) - 1, 1)
        return cls({"mean": statistics.means[0].to(dtype), "gaps": gaps.to(dtype)})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike | None = None, *, head: Any) -> "FDBD":
        """The mean of ID features; labels are not needed."""
        statistics = cls.statistics(outputs, labels)
        check_linear(head, outputs)
        return cls.from_statistics(statistics, head, detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        features, raw = read_fields(outputs, "features", "raw")
        to_mean = norm(subtract_centre(features, self.mean))
        raw = widen(raw)
        top = raw.max(1)
        to_boundaries = ((top.values[:, None] - raw) * self.gaps.to(raw)[top.indices]).sum(1)
        return finite_scores(to_boundaries / to_mean.clamp_min(torch.finfo(to_mean.dtype).tiny), outputs)
