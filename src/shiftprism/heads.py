"""Features in, logits out: drop-ins for `nn.Linear`, so that `model.fc = Geometric(512, 10)` trains in anyone's loop.

Symbols, as in the paper: f feature, W class weights, s_k = w_k·f / |f| the similarity, α in (0, 1), β > 0.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs

SMALLEST_NORM = 1e-6
"""A norm below this counts as this in a division, so that f = 0 has finite values and gradients."""
SMALLEST_ALPHA = 1e-6
"""α never falls below this: a sigmoid underflows to 0, and logits are divided by it."""


def norm(features: Tensor) -> Tensor:
    """|f| for each row, (N, D) -> (N,), without overflow or underflow of the squares; its gradient at f = 0 is 0.

    >>> norm(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([5.0000e+30, 0.0000e+00])
    """
    scale = features.detach().abs().amax(1, keepdim=True).clamp_min(torch.finfo(features.dtype).tiny)
    lengths: Tensor = torch.linalg.vector_norm(features / scale, dim=1)
    return scale.squeeze(1) * lengths


def multiplier(norms: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """m = 1/α + β/(α|f|), (N,): what turns W f into (|f| + β)/α · s. It is positive, so no class changes its rank.

    With α = 1 and β = 0 it is exactly 1, which is why a neutral head equals a linear one bit for bit.

    >>> multiplier(torch.tensor([2.0]), torch.tensor(0.5), torch.tensor(1.0))
    tensor([3.])
    """
    return (1 + beta / norms.clamp_min(SMALLEST_NORM)) / alpha.clamp_min(SMALLEST_ALPHA)


class Head(nn.Module, ABC):
    """What every head answers. Only `outputs` has to be written; the training loop's questions have plain defaults."""

    in_features: int
    out_features: int
    needs_image_gradient = False
    """Whether `penalty` differentiates by the images; the loop then gives it floats in [0, 1] that carry a gradient."""

    @abstractmethod
    def outputs(self, features: Tensor) -> Outputs:
        """All five fields for features (N, D)."""

    def forward(self, features: Tensor) -> Tensor:
        return self.outputs(features).logits

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What training minimises: the mean cross entropy."""
        return F.cross_entropy(logits, labels)

    def penalty(self, images: Tensor, logits: Tensor) -> Tensor:
        """Added to the loss; a head that uses it may differentiate the logits by the images."""
        return logits.new_zeros(())

    def after_step(self, features: Tensor, labels: Tensor) -> None:
        """Called after each optimiser step, without gradients."""

    def start_epoch(self) -> None:
        """Called before each epoch."""

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """What the optimiser gets, with the weight decay each part should have."""
        return [{"params": list(self.parameters()), "weight_decay": weight_decay}]

    def scales(self, features: Tensor) -> dict[str, Tensor]:
        """The scales the head applies to each input, by name, (N,) each: they tell whether the head works."""
        return {}

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class Weighted(Head, ABC):
    """A head with class weights W (K, D) and perhaps a bias.

    They are drawn as `nn.Linear` draws them and before anything else: equal seeds give equal W in every such head.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value < 1:
                raise wrong(name, "a positive number", value, "a head maps D features to K classes")
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(in_features)
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound)) if bias else None


class Linear(Weighted):
    """The vanilla head: logits = W f (+ b). Without a bias by default, so that heads are compared, not biases.

    >>> Linear(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__(in_features, out_features, bias)

    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = _project(features, self.weight, self.bias)
        return Outputs(features, norms, similarities, raw, raw)


class Geometric(Weighted):
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

    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = _project(features, self.weight, self.bias)
        m = multiplier(norms, *self._scales(features))
        return Outputs(features, norms, similarities, raw, m[:, None] * raw)

    def scales(self, features: Tensor) -> dict[str, Tensor]:
        alpha, beta = self._scales(features)
        found = {"alpha": (self.alpha, alpha), "beta": (self.beta, beta)}
        return {name: values for name, (layer, values) in found.items() if layer is not None}

    def _scales(self, features: Tensor) -> tuple[Tensor, Tensor]:
        neutral = torch.ones_like(features[:, 0])
        alpha = neutral if self.alpha is None else torch.sigmoid(self.alpha(features)).squeeze(1)
        beta = 0 * neutral if self.beta is None else F.softplus(self.beta(features)).squeeze(1)
        return alpha, beta


class GSD(Weighted):
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

    def outputs(self, features: Tensor) -> Outputs:
        norms, similarities, raw = _project(features, self.weight, self.bias)
        m = multiplier(norms, *self._scales(features))
        return Outputs(features, norms, similarities, raw, m[:, None] * raw)

    def scales(self, features: Tensor) -> dict[str, Tensor]:
        found = dict(zip(("alpha", "beta"), self._scales(features), strict=True))
        own = {name: value for name, value in found.items() if getattr(self, name) is not None}
        return {name: value.expand(features.shape[0]) for name, value in own.items()}

    def _scales(self, features: Tensor) -> tuple[Tensor, Tensor]:
        alpha = features.new_ones(()) if self.alpha is None else torch.sigmoid(self.alpha)
        beta = features.new_zeros(()) if self.beta is None else F.softplus(self.beta)
        return alpha, beta


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
        norms, similarities, raw = _project(features, self.weight, self.bias)
        logits = raw / self.divisor(features).clamp_min(SMALLEST_ALPHA)
        return Outputs(features, norms, similarities, raw, logits)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return _undecayed(self, [self.weight, *([] if self.bias is None else [self.bias])], weight_decay)


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
        unit = self.weight / norm(self.weight).clamp_min(SMALLEST_NORM)[:, None]
        norms, cosines, raw = _project(features, unit, None)
        return Outputs(features, norms, cosines, raw, cosines / self.divisor(features).clamp_min(SMALLEST_ALPHA))

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return _undecayed(self, [self.weight], weight_decay)


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
        _check(features, self.in_features)
        # |f − w|² = |f|² − 2 f·w + |w|² needs (N, K) memory where the differences would need (N, K, D).
        squares = features.square().sum(1, keepdim=True) + self.weight.square().sum(1)
        raw = -(squares - 2 * F.linear(features, self.weight)).clamp_min(0) / self.in_features
        logits = raw / self.divisor(features).clamp_min(SMALLEST_ALPHA)
        return Outputs(features, norm(features), raw, raw, logits)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return _undecayed(self, [self.weight], weight_decay)


def _check(features: Tensor, in_features: int) -> None:
    if features.ndim != 2 or features.shape[1] != in_features:
        got = f"shape {tuple(features.shape)}"
        raise wrong("features", f"of shape (N, {in_features})", got, "pass the flattened input of the last layer")


def _project(features: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(|f|, W f / |f|, W f + b): the similarities never see the bias."""
    _check(features, weight.shape[1])
    plain = F.linear(features, weight)
    norms = norm(features)
    similarities = plain / norms.clamp_min(SMALLEST_NORM)[:, None]
    return norms, similarities, plain if bias is None else plain + bias


def _divisor(in_features: int) -> nn.Module:
    """Generalized ODIN's g(f), (N, D) -> (N, 1) in (0, 1). BatchNorm makes it need two samples a batch in training."""
    return nn.Sequential(nn.Linear(in_features, 1), nn.BatchNorm1d(1), nn.Sigmoid())


def _undecayed(head: Head, free: list[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    known = {id(parameter) for parameter in free}
    rest = [parameter for parameter in head.parameters() if id(parameter) not in known]
    return [{"params": free, "weight_decay": 0.0}, {"params": rest, "weight_decay": weight_decay}]


HEADS: dict[str, Callable[[int, int], Head]] = {
    "vanilla": Linear,
    "alpha": partial(Geometric, beta=False),
    "beta": partial(Geometric, alpha=False),
    "alpha-beta": Geometric,
    "gsd": partial(GSD, alpha=False),
    "inner": Inner,
    "cosine": Cosine,
    "euclidean": Euclidean,
}
