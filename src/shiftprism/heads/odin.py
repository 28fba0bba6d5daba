"""Heads whose scale is a batch-normalised function of the feature: Generalized ODIN's three, and scaled cosine."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism.heads._head import SMALLEST_ALPHA, SMALLEST_NORM, Weighted, check_features, norm, project, undecayed
from shiftprism.outputs import Outputs


class Inner(Weighted):
    """Generalized ODIN h^I (Hsu et al. 2020): logit_k = (w_k·f + b_k) / sigmoid(BN(a·f)), no weight decay on W and b.

    >>> Inner(4, 3)(torch.rand(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=True)
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.divisor = _divisor(in_features)

    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = project(features, self.weight, self.bias)
        logits = raw / self.divisor(features).clamp_min(SMALLEST_ALPHA)
        return Outputs(features, norms, similarities, raw, logits)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return undecayed(self, [self.weight, *([] if self.bias is None else [self.bias])], weight_decay)


class Cosine(Weighted):
    """Generalized ODIN h^C (Hsu et al. 2020): logit_k = cos φ_k / sigmoid(BN(a·f)), no weight decay on W.

    Its class weights have length 1, so `similarities` are the cosines and `max_similarity` is the score of its paper.

    >>> Cosine(4, 3).outputs(torch.rand(2, 4)).similarities.abs().max() <= 1
    tensor(True)
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        self.divisor = _divisor(in_features)

    def outputs(self, features: Tensor) -> Outputs:
        norms, cosines, raw = _cosines(features, self.weight)
        return Outputs(features, norms, cosines, raw, cosines / self.divisor(features).clamp_min(SMALLEST_ALPHA))

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return undecayed(self, [self.weight], weight_decay)


class Euclidean(Weighted):
    """Generalized ODIN h^E (Hsu et al. 2020): logit_k = −mean_d (f_d − w_kd)² / sigmoid(BN(a·f)), no weight decay on W.

    The mean over D, as in the public code, is the paper's sum times 1/D. `similarities` and `raw` hold the numerator.

    >>> Euclidean(4, 3).outputs(torch.rand(2, 4)).raw.max() <= 0
    tensor(True)
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        self.divisor = _divisor(in_features)

    def outputs(self, features: Tensor) -> Outputs:
        check_features(features, self.in_features)
        # |f − w|² = |f|² − 2 f·w + |w|² needs (N, K) memory where the differences would need (N, K, D).
        squares = features.square().sum(1, keepdim=True) + self.weight.square().sum(1)
        raw = -(squares - 2 * F.linear(features, self.weight)).clamp_min(0) / self.in_features
        logits = raw / self.divisor(features).clamp_min(SMALLEST_ALPHA)
        return Outputs(features, norm(features), raw, raw, logits)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return undecayed(self, [self.weight], weight_decay)


class HyperFree(Weighted):
    """Scaled cosine without hyper-parameters (Techapanurak et al. 2020): logit_k = exp(BN(a·f)) · cos φ_k.

    No weight decay on W. `similarities` are the cosines: `max_similarity` is the score of its paper. The exponent stays
    within ±ln 10⁶, as far as Generalized ODIN's divisor reaches here: features far out would make it infinite.

    >>> HyperFree(4, 3).outputs(torch.rand(2, 4)).similarities.abs().max() <= 1
    tensor(True)
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.exponent = nn.Sequential(nn.Linear(in_features, 1), nn.BatchNorm1d(1))

    def outputs(self, features: Tensor) -> Outputs:
        norms, cosines, raw = _cosines(features, self.weight)
        return Outputs(features, norms, cosines, raw, self.scales(features)["scale"][:, None] * cosines)

    def scales(self, features: Tensor) -> dict[str, Tensor]:
        most = -math.log(SMALLEST_ALPHA)
        return {"scale": self.exponent(features).squeeze(1).clamp(-most, most).exp()}

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return undecayed(self, [self.weight], weight_decay)


def _cosines(features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(|f|, cos φ, |f| cos φ): the projection on class weights of length 1."""
    return project(features, weight / norm(weight).clamp_min(SMALLEST_NORM)[:, None], None)


def _divisor(in_features: int) -> nn.Module:
    """Generalized ODIN's g(f), (N, D) -> (N, 1) in (0, 1). BatchNorm makes it need two samples a batch in training."""
    return nn.Sequential(nn.Linear(in_features, 1), nn.BatchNorm1d(1), nn.Sigmoid())
