"""The part of a feature that lies outside the directions in which ID features spread."""

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.heads import check_linear, class_weights
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, clamp_before_squaring, detach_float, finite_scores, subtract_centre
from shiftprism.scores._moments import CHUNK, Moments


class Residual(Fitted):
    """−|x^⊥|, (N,): the length of f − o outside the principal space of the ID features (Wang et al. 2022).

    The origin is o = −W⁺ b, where all logits are equal, so `head` is needed. The principal space has `dimensions`
    directions, those of the largest eigenvalues of Σ (f − o)(f − o)ᵀ; the default is that of ViM's authors.
    """

    origin: Tensor
    rest: Tensor
    """(D, D − dimensions): an orthonormal basis of the directions outside the principal space."""

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike | None = None) -> Moments:
        """What a fit needs to know of these rows, (D, D) numbers; parts add up with `+`. Labels are not needed."""
        (features,) = read_fields(outputs, "features")
        return Moments.of(features.detach())

    @classmethod
    def from_statistics(
        cls, statistics: Moments, head: Any, dimensions: int | None = None, dtype: torch.dtype = torch.float32
    ) -> "Residual":
        """The score of summed statistics, its buffers in `dtype`."""
        width = statistics.means.shape[1]
        weight, bias = class_weights(head, width, statistics.means)
        # the least-squares solution of W o = −b: the logits are all 0 there, or as close to it as W allows
        origin = -(torch.linalg.pinv(weight) @ bias)
        dimensions = principal_dimensions(width) if dimensions is None else dimensions
        rest = _complement(statistics.scatter_about(origin), dimensions)
        return cls({"origin": origin.to(dtype), "rest": rest.to(dtype)})

    @classmethod
    def fit(
        cls, outputs: Outputs, labels: ArrayLike | None = None, *, head: Any, dimensions: int | None = None
    ) -> "Residual":
        """The principal space of ID features; labels are not needed."""
        statistics = cls.statistics(outputs, labels)
        check_linear(head, outputs)
        return cls.from_statistics(statistics, head, dimensions, detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read_fields(outputs, "features")
        return finite_scores(-_residual_norms(features, self.origin, self.rest), outputs)


class ViM(Fitted):
    """ln Σ_k exp l_k − α |x^⊥|, (N,): the energy of the linear layer's logits less a virtual logit (Wang et al. 2022).

    |x^⊥| is that of `Residual`, and α = mean(max_k l_k) / mean(|x^⊥|) over the fit data brings it to the logits' size.
    The logits are `raw`, W f + b, since that is what the principal space belongs to.
    """

    origin: Tensor
    rest: Tensor
    alpha: Tensor

    @classmethod
    def fit(
        cls, outputs: Outputs, labels: ArrayLike | None = None, *, head: Any, dimensions: int | None = None
    ) -> "ViM":
        """The principal space of ID features, then α; labels are not needed."""
        space = Residual.fit(outputs, labels, head=head, dimensions=dimensions)
        features, raw = read_fields(outputs, "features", "raw")
        # α needs the finished space: a second pass over the data, again in chunks
        chunks = features.detach().split(CHUNK)
        # numbers, not tensors: small ones that stay between large ones that do not would fragment the memory
        total = sum(float(_residual_norms(chunk, space.origin, space.rest).double().sum()) for chunk in chunks)
        tops = sum(float(chunk.amax(1).double().sum()) for chunk in raw.detach().split(CHUNK))
        alpha = tops / total if total > 0 else 0.0  # no residual at all: the score is the energy alone
        return cls({"origin": space.origin, "rest": space.rest, "alpha": space.origin.new_tensor(alpha)})

    def forward(self, outputs: Outputs) -> Tensor:
        features, raw = read_fields(outputs, "features", "raw")
        virtual = self.alpha.to(raw) * _residual_norms(features, self.origin, self.rest)
        return finite_scores(torch.logsumexp(raw, 1) - virtual, outputs)


def principal_dimensions(width: int) -> int:
    """The dimensions ViM's authors keep of D features: 1000 of 1500 or more, 512 of 768 or more, else half."""
    return 1000 if width >= 1500 else 512 if width >= 768 else width // 2


def _complement(scatter: Tensor, dimensions: int) -> Tensor:
    """The eigenvectors of all but the `dimensions` largest eigenvalues, (D, D − dimensions)."""
    width = len(scatter)
    if not 0 <= dimensions < width:
        raise wrong("dimensions", f"from 0 to {width - 1}", dimensions, "leave at least one direction outside")
    vectors: Tensor = torch.linalg.eigh(scatter)[1]  # of ascending eigenvalues
    return vectors[:, : width - dimensions].contiguous()


def _residual_norms(features: Tensor, origin: Tensor, rest: Tensor) -> Tensor:
    """|x^⊥| for each row, (N,)."""
    offsets = subtract_centre(features, origin)
    lengths: Tensor = torch.linalg.vector_norm(clamp_before_squaring(offsets @ rest.to(offsets)), dim=1)
    return lengths
