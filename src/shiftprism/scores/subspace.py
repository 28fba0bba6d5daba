"""What of a feature lies outside the directions in which ID features spread."""

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs
from shiftprism.scores._fitted import Fitted, check_linear, class_weights, detached, finite_like, same_width, tame
from shiftprism.scores._moments import CHUNK, Moments
from shiftprism.scores._reading import read


class Residual(Fitted):
    """−|x^⊥|, (N,): the length of f − o outside the principal space of the ID features (Wang et al. 2022).

    The origin is o = −W⁺ b, where all logits are equal, so `head` is needed. The principal space has `dimensions`
    directions, those of the largest eigenvalues of Σ (f − o)(f − o)ᵀ; by default as many as ViM's authors took.
    """

    origin: Tensor
    rest: Tensor
    """(D, D − dimensions): an orthonormal basis of what the principal space leaves out."""

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike | None = None) -> Moments:
        """What a fit needs to know of these rows, (D, D) numbers; parts add up with `+`. Labels are not needed."""
        (features,) = read(outputs, "features")
        together = torch.zeros(outputs.N, dtype=torch.int64, device=features.device)
        return Moments.of(detached(features), together, 1)

    @classmethod
    def from_statistics(
        cls, statistics: Moments, head: Any, dimensions: int | None = None, dtype: torch.dtype = torch.float32
    ) -> "Residual":
        """The score of summed statistics, its buffers in `dtype`."""
        width = statistics.means.shape[1]
        weight, bias = class_weights(head, width, statistics.means)
        origin = -(torch.linalg.pinv(weight) @ bias)
        rest = _rest(statistics.about(origin), principal(width) if dimensions is None else dimensions)
        return cls({"origin": origin.to(dtype), "rest": rest.to(dtype)})

    @classmethod
    def fit(
        cls, outputs: Outputs, labels: ArrayLike | None = None, *, head: Any, dimensions: int | None = None
    ) -> "Residual":
        """The principal space of ID features; labels are not needed."""
        statistics = cls.statistics(outputs, labels)
        check_linear(head, outputs)
        return cls.from_statistics(statistics, head, dimensions, detached(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read(outputs, "features")
        return finite_like(-_length(features, self.origin, self.rest), outputs)


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
        inside = Residual.fit(outputs, labels, head=head, dimensions=dimensions)
        features, raw = read(outputs, "features", "raw")
        # α needs the finished space: a second pass, again in chunks
        lengths = [_length(part.detach(), inside.origin, inside.rest).double().sum() for part in features.split(CHUNK)]
        total = float(torch.stack(lengths).sum())
        tops = float(raw.detach().amax(1).double().sum())
        alpha = tops / total if total > 0 else 0.0
        return cls({"origin": inside.origin, "rest": inside.rest, "alpha": inside.origin.new_tensor(alpha)})

    def forward(self, outputs: Outputs) -> Tensor:
        features, raw = read(outputs, "features", "raw")
        virtual = self.alpha.to(raw) * _length(features, self.origin, self.rest)
        return finite_like(torch.logsumexp(raw, 1) - virtual, outputs)


def principal(width: int) -> int:
    """How many directions ViM's authors keep of D features: 1000 of 1500 or more, 512 of 768 or more, else half."""
    return 1000 if width >= 1500 else 512 if width >= 768 else width // 2


def _rest(products: Tensor, dimensions: int) -> Tensor:
    """The eigenvectors of all but the `dimensions` largest eigenvalues, (D, D − dimensions)."""
    width = len(products)
    if not 0 <= dimensions < width:
        raise wrong("dimensions", f"from 0 to {width - 1}", dimensions, "something must be left outside")
    vectors: Tensor = torch.linalg.eigh(products)[1]
    return vectors[:, : width - dimensions].contiguous()


def _length(features: Tensor, origin: Tensor, rest: Tensor) -> Tensor:
    features = same_width(features, len(origin)).to(torch.promote_types(features.dtype, torch.float32))
    lengths: Tensor = torch.linalg.vector_norm(tame(tame(features - origin.to(features)) @ rest.to(features)), dim=1)
    return lengths
