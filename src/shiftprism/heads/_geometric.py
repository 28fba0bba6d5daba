"""The vanilla head and the two whose logits are (|f| + β)/α · s: the paper's, and GSD."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism.heads._head import Weighted, in_float32, multiplier
from shiftprism.outputs import Outputs


class Linear(Weighted):
    """The vanilla head: logits = W f (+ b). Without a bias by default, so that heads are compared, not biases.

    >>> Linear(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__(in_features, out_features, bias)

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = self._project(features, self.weight, self.bias)
        return Outputs(features, norms, similarities, raw, raw)


class _AlphaBeta(Weighted, ABC):
    """logit_k = (|f| + β)/α · s_k; a subclass says what α and β are."""

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = self._project(features, self.weight, self.bias)
        m = multiplier(norms, *self._alpha_and_beta(features))
        return Outputs(features, norms, similarities, raw, m[:, None] * raw)

    @in_float32
    def scales(self, features: Tensor) -> dict[str, Tensor]:
        values = dict(zip(("alpha", "beta"), self._alpha_and_beta(features), strict=True))
        learned = {name: value for name, value in values.items() if getattr(self, name) is not None}
        return {name: value.expand(len(features)) for name, value in learned.items()}

    @abstractmethod
    def _alpha_and_beta(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """α and β, (N,) each or one number for all inputs."""


class Geometric(_AlphaBeta):
    """The paper's α-β head: logit_k = (|f| + β(f))/α(f) · s_k, α = sigmoid(a·f + a₀), β = softplus(b·f + b₀) (eq. 8).

    `alpha=False` fixes α = 1 (the paper's β-only model), `beta=False` fixes β = 0 (its α-only model), both together
    give `Linear`. It adds 2 (D + 1) parameters and no hyper-parameter.

    >>> torch.manual_seed(0) and Geometric(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, in_features: int, out_features: int, alpha: bool = True, beta: bool = True, bias: bool = False
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.alpha = nn.Linear(in_features, 1) if alpha else None
        self.beta = nn.Linear(in_features, 1) if beta else None

    def _alpha_and_beta(self, features: Tensor) -> tuple[Tensor, Tensor]:
        neutral = torch.ones_like(features[:, 0])
        alpha = neutral if self.alpha is None else torch.sigmoid(self.alpha(features)).squeeze(1)
        beta = 0 * neutral if self.beta is None else F.softplus(self.beta(features)).squeeze(1)
        return alpha, beta


class GSD(_AlphaBeta):
    """Geometric Sensitivity Decomposition (Tian et al. 2021): the α-β form with two learned scalars for all inputs.

    `alpha=False` fixes α = 1, the setting its authors published.

    >>> GSD(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, in_features: int, out_features: int, alpha: bool = True, beta: bool = True, bias: bool = False
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.alpha = nn.Parameter(torch.zeros(())) if alpha else None
        self.beta = nn.Parameter(torch.zeros(())) if beta else None

    def _alpha_and_beta(self, features: Tensor) -> tuple[Tensor, Tensor]:
        alpha = features.new_ones(()) if self.alpha is None else torch.sigmoid(self.alpha)
        beta = features.new_zeros(()) if self.beta is None else F.softplus(self.beta)
        return alpha, beta
