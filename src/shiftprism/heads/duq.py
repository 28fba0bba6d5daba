"""DUQ's head: how near a feature lies to the centroid of each class, in an embedding of that class's own."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.heads._head import Head, check_features, norm, summed
from shiftprism.outputs import Outputs


class DUQ(Head):
    """Deterministic uncertainty quantification (van Amersfoort et al. 2020): a kernel on the distance to centroids.

    e_k = W_k f, (E,), one matrix a class; K_k = exp(−mean_d (e_kd − μ_kd)² / (2σ²)) in (0, 1]. `logits`, `raw` and
    `similarities` hold ln K_k: the largest is the nearest centroid's, and softmax gives the kernels' shares K_k / Σ K.
    The published score is the largest kernel; `max_logit`, its logarithm, ranks alike where kernels underflow too.

    - Loss: binary cross entropy of every K_k against the one-hot label, the mean over all entries.
    - Centroids μ_k = m_k / n_k by moving average after each step: n_k ← γ n_k + (1 − γ)·(number of class k in the
      batch), m_k ← γ m_k + (1 − γ) Σ e_k over them. The features are those of the step's own forward, as in the paper;
      the public code forwards the batch once more, in evaluation mode.
    - Penalty: weight · mean (|∂ Σ_k K_k / ∂x| − 1)², x the normalised images: neither flat nor steep in the input.

    Constants are those of the public CIFAR models: E = 512, σ = 0.1, γ = 0.999, n₀ = 13, m₀ ~ n₀·N(0, 0.05²), weight
    0.75, trained with SGD at rate 0.05.

    >>> outputs = DUQ(4, 3).outputs(torch.rand(2, 4))
    >>> outputs.logits.max() <= 0
    tensor(True)
    """

    counts: Tensor
    sums: Tensor
    needs_image_gradient = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        embedding: int = 512,
        sigma: float = 0.1,
        gamma: float = 0.999,
        weight: float = 0.75,
    ) -> None:
        super().__init__()
        self._sizes(in_features, out_features)
        for name, value in (("embedding", embedding), ("sigma", sigma)):
            if not 0 < value < math.inf:
                raise wrong(name, "positive and finite", value, "leave it out for the published value")
        if not 0 <= gamma < 1:
            raise wrong("gamma", "in [0, 1)", gamma, "leave it out for the published value")
        if not 0 <= weight < math.inf:
            raise wrong("weight", "0 or more and finite", weight, "leave it out for the published value")
        self.sigma, self.gamma, self.penalty_weight = sigma, gamma, weight
        self.embedding = nn.Parameter(torch.empty(embedding, out_features, in_features))
        nn.init.kaiming_normal_(self.embedding, nonlinearity="relu")
        self.register_buffer("counts", torch.full((out_features,), _FIRST_COUNT))
        self.register_buffer("sums", _FIRST_COUNT * 0.05 * torch.randn(embedding, out_features))

    @property
    def centroids(self) -> Tensor:
        """μ, (E, K)."""
        return self.sums / self.counts

    def outputs(self, features: Tensor) -> Outputs:
        distances = (self._embedded(features) - self.centroids).square().mean(1)
        logits = -distances / (2 * self.sigma**2)
        return Outputs(features, norm(features), logits, logits, logits)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        # ln(1 − K) from ln K; a wrong class whose kernel rounds to 1 has a large loss and gradient, not infinite ones.
        others = torch.log(-torch.expm1(logits.clamp_max(-_SMALLEST_DISTANCE)))
        own = F.one_hot(labels, self.out_features).bool()
        return -torch.where(own, logits, others).mean()

    def penalty(self, images: Tensor, logits: Tensor) -> Tensor:
        (slopes,) = torch.autograd.grad(logits.exp().sum(), images, create_graph=True)
        return self.penalty_weight * (norm(slopes.flatten(1)) - 1).square().mean()

    def after_step(self, features: Tensor, labels: Tensor) -> None:
        with torch.no_grad():
            own = F.one_hot(labels, self.out_features).to(features)
            sums = torch.einsum("nek,nk->ek", self._embedded(features), own)
            self.counts.lerp_(summed(own.sum(0)), 1 - self.gamma)
            self.sums.lerp_(summed(sums), 1 - self.gamma)

    def _embedded(self, features: Tensor) -> Tensor:
        """(N, E, K)."""
        check_features(features, self.in_features)
        embedded: Tensor = F.linear(features, self.embedding.flatten(0, 1)).unflatten(1, self.embedding.shape[:2])
        return embedded


_FIRST_COUNT = 13.0  # about as many of a class as are in a batch of 128 of CIFAR-10
_SMALLEST_DISTANCE = 1e-6
