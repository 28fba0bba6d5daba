"""Heads whose scale is a batch-normalised function of the feature: Generalized ODIN's three, and scaled cosine."""

import math
from abc import ABC

import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism.heads._head import SMALLEST_ALPHA, SMALLEST_NORM, Weighted, in_float32, norm
from shiftprism.outputs import Outputs


class _Divided(Weighted, ABC):
    """Generalized ODIN's form logit_k = h_k(f) / g(f), with g(f) = sigmoid(BN(a·f)) in (0, 1).

    BatchNorm makes it need two samples a batch in training.
    """

    undecayed: tuple[str, ...] = ("weight",)
    has_bias = False

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, self.has_bias)
        # the public code's start, in place of nn.Linear's
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self.divisor = nn.Sequential(nn.Linear(in_features, 1), nn.BatchNorm1d(1), nn.Sigmoid())

    def _divide(self, values: Tensor, features: Tensor) -> Tensor:
        divisor: Tensor = self.divisor(features)
        return values / divisor.clamp_min(SMALLEST_ALPHA)


class Inner(_Divided):
    """Generalized ODIN h^I (Hsu et al. 2020): logit_k = (w_k·f + b_k) / sigmoid(BN(a·f)), no weight decay on W and b.

    >>> import torch
    >>> Inner(4, 3)(torch.rand(2, 4)).shape
    torch.Size([2, 3])
    """

    undecayed = ("weight", "bias")
    has_bias = True

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = self._project(features, self.weight, self.bias)
        return Outputs(features, norms, similarities, raw, self._divide(raw, features))


class Cosine(_Divided):
    """Generalized ODIN h^C (Hsu et al. 2020): logit_k = cos φ_k / sigmoid(BN(a·f)), no weight decay on W.

    Its class weights have length 1, so `similarities` are the cosines and `max_similarity` is the score of its paper.

    >>> import torch
    >>> Cosine(4, 3).outputs(torch.rand(2, 4)).similarities.abs().max() <= 1
    tensor(True)
    """

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, cosines, raw = self._project(features, _unit_weights(self.weight), None)
        return Outputs(features, norms, cosines, raw, self._divide(cosines, features))


class Euclidean(_Divided):
    """Generalized ODIN h^E (Hsu et al. 2020): logit_k = −mean_d (f_d − w_kd)² / sigmoid(BN(a·f)), no weight decay on W.

    The mean over D, as in the public code, is the paper's sum times 1/D. `similarities` and `raw` hold the numerator.

    >>> import torch
    >>> Euclidean(4, 3).outputs(torch.rand(2, 4)).raw.max() <= 0
    tensor(True)
    """

    finite_up_to = 1e15

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        self._check_features(features)
        # |f − w|² = |f|² − 2 f·w + |w|² needs (N, K) memory where the differences would need (N, K, D).
        squares = features.square().sum(1, keepdim=True) + self.weight.square().sum(1)
        raw = -(squares - 2 * F.linear(features, self.weight)).clamp_min(0) / self.in_features
        return Outputs(features, norm(features), raw, raw, self._divide(raw, features))


class HyperFree(Weighted):
    """Scaled cosine without hyper-parameters (Techapanurak et al. 2020): logit_k = exp(BN(a·f)) · cos φ_k.

    No weight decay on W. `similarities` are the cosines: `max_similarity` is the score of its paper. The exponent stays
    within ±ln 10⁶, the range that Generalized ODIN's divisor has here: for very large features it would be infinite.

    >>> import torch
    >>> HyperFree(4, 3).outputs(torch.rand(2, 4)).similarities.abs().max() <= 1
    tensor(True)
    """

    undecayed = ("weight",)

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.exponent = nn.Sequential(nn.Linear(in_features, 1), nn.BatchNorm1d(1))

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, cosines, raw = self._project(features, _unit_weights(self.weight), None)
        return Outputs(features, norms, cosines, raw, self.scales(features)["scale"][:, None] * cosines)

    @in_float32
    def scales(self, features: Tensor) -> dict[str, Tensor]:
        most = -math.log(SMALLEST_ALPHA)
        return {"scale": self.exponent(features).squeeze(1).clamp(-most, most).exp()}


def _unit_weights(weight: Tensor) -> Tensor:
    """The class weights scaled to length 1: projecting on them gives (|f|, cos φ, |f| cos φ)."""
    return weight / norm(weight).clamp_min(SMALLEST_NORM)[:, None]
