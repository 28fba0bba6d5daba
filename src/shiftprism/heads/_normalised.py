"""Heads that keep a network from lowering its loss by longer vectors alone: LogitNorm and T2FNorm."""

import torch.nn.functional as F
from torch import Tensor

from shiftprism.heads._head import SMALLEST_NORM, Weighted, check_settings, in_float32, norm
from shiftprism.outputs import Outputs


class LogitNorm(Weighted):
    """LogitNorm (Wei et al. 2022): logit_k = w_k·f, trained by the cross entropy of logits / (τ |logits|).

    The loss sees directions only, so norms do not grow with training. τ = .04 is the published value for CIFAR-10.

    >>> import torch
    >>> head, logits, labels = LogitNorm(4, 3), torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0])
    >>> torch.allclose(head.loss(logits, labels), head.loss(1000 * logits, labels))
    True
    """

    def __init__(self, in_features: int, out_features: int, temperature: float = 0.04) -> None:
        check_settings({"temperature": temperature}, {})
        super().__init__(in_features, out_features, bias=False)
        self.temperature = temperature

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = self._project(features, self.weight, None)
        return Outputs(features, norms, similarities, raw, raw)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        lengths = norm(logits.float() if logits.dtype.itemsize < 4 else logits)
        return F.cross_entropy(logits / (self.temperature * lengths.clamp_min(SMALLEST_NORM))[:, None], labels)


class T2FNorm(Weighted):
    """T2FNorm (Regmi et al. 2024): logit_k = w_k·f / (τ |f|) in training, w_k·f / τ afterwards.

    What it predicts is the same either way; the norm, which training did not see, counts for scores. τ = .1 is the
    published value for CIFAR-10.

    >>> import torch
    >>> head, features = T2FNorm(4, 3), torch.rand(2, 4)
    >>> torch.allclose(head.train()(features), head(1000 * features))
    True
    >>> torch.allclose(head.eval()(features), head(1000 * features))
    False
    """

    def __init__(self, in_features: int, out_features: int, temperature: float = 0.1) -> None:
        check_settings({"temperature": temperature}, {})
        super().__init__(in_features, out_features, bias=False)
        self.temperature = temperature

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = self._project(features, self.weight, None)
        logits = (similarities if self.training else raw) / self.temperature
        return Outputs(features, norms, similarities, raw, logits)
