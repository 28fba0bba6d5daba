"""DUQ's head: how near a feature lies to the centroid of each class, in an embedding of that class's own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.heads._head import Head, check_settings, in_float32, norm, sum_over_processes
from shiftprism.outputs import Outputs


class DUQ(Head):
    """Deterministic uncertainty quantification (van Amersfoort et al. 2020): a kernel on the distance to centroids.

    e_k = W_k f, (E,), one matrix a class; K_k = exp(−mean_d (e_kd − μ_kd)² / (2σ²)) in (0, 1]. `logits`, `raw` and
    `similarities` hold ln K_k: the largest is the nearest centroid's, and softmax gives the kernels' shares K_k / Σ K.
    The published score is the largest kernel. `max_logit` is its logarithm: it gives the same order, and still tells
    inputs apart whose kernels underflow to 0.

    - Loss: binary cross entropy of every K_k against the one-hot label, the mean over all entries.
    - Centroids μ_k = m_k / n_k by moving average after each step: n_k ← γ n_k + (1 − γ)·(number of class k in the
      batch), m_k ← γ m_k + (1 − γ) Σ e_k over them. The features are those of the step's own forward, as in the paper;
      the public code forwards the batch once more, in evaluation mode.
    - Penalty: weight · mean (|∂ Σ_k K_k / ∂x| − 1)², x the normalised images: it keeps the kernels from being flat or
      steep in the input.

    Constants are those of the public CIFAR models: E = 512, σ = 0.1, γ = 0.999, n₀ = 13, m₀ ~ n₀·N(0, 0.05²), weight
    0.75, trained with SGD at rate 0.05.

    >>> outputs = DUQ(4, 3).outputs(torch.rand(2, 4))
    >>> outputs.logits.max() <= 0
    tensor(True)
    """

    counts: Tensor
    sums: Tensor
    needs_image_gradient = True
    finite_up_to = 1e15

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
        self._set_sizes(in_features, out_features)
        check_settings(positive={"embedding": embedding, "sigma": sigma}, non_negative={"weight": weight})
        if not 0 <= gamma < 1:
            raise wrong("gamma", "in [0, 1)", gamma, "leave it out for the published value")
        self.sigma, self.gamma, self.penalty_weight = sigma, gamma, weight
        self.embedding = nn.Parameter(torch.empty(embedding, out_features, in_features))
        nn.init.kaiming_normal_(self.embedding, nonlinearity="relu")
        self.register_buffer("counts", torch.full((out_features,), _FIRST_COUNT))
        self.register_buffer("sums", _FIRST_COUNT * 0.05 * torch.randn(embedding, out_features))

    @property
    def centroids(self) -> Tensor:
        """μ, (E, K)."""
        return self.sums / self.counts

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        distances = (self._embed(features) - self.centroids).square().mean(1)
        logits = -distances / (2 * self.sigma**2)
        return Outputs(features, norm(features), logits, logits, logits)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        # ln(1 − K) from ln K, by expm1 because K may round to 1. The bound keeps the loss of a wrong class with K = 1
        # large but finite, and its gradient too.
        log_complements = torch.log(-torch.expm1(logits.clamp_max(-_SMALLEST_DISTANCE)))
        is_label = F.one_hot(labels, self.out_features).bool()
        return -torch.where(is_label, logits, log_complements).mean()

    def penalty(self, images: Tensor, logits: Tensor) -> Tensor:
        (slopes,) = torch.autograd.grad(logits.exp().sum(), images, create_graph=True)
        return self.penalty_weight * (norm(slopes.flatten(1)) - 1).square().mean()

    @in_float32
    def after_step(self, features: Tensor, labels: Tensor) -> None:
        with torch.no_grad():
            is_label = F.one_hot(labels, self.out_features).to(features)
            # each row adds its embedding for its own class only
            sums = torch.einsum("nek,nk->ek", self._embed(features), is_label)
            # lerp is the moving average: γ · old + (1 − γ) · new
            self.counts.lerp_(sum_over_processes(is_label.sum(0)), 1 - self.gamma)
            self.sums.lerp_(sum_over_processes(sums), 1 - self.gamma)

    def _embed(self, features: Tensor) -> Tensor:
        """(N, E, K): W_k f for every class, as one matrix product."""
        self._check_features(features)
        embedded: Tensor = F.linear(features, self.embedding.flatten(0, 1)).unflatten(1, self.embedding.shape[:2])
        return embedded


_FIRST_COUNT = 13.0  # the mean number of samples of a class in a batch of 128 of CIFAR-10
_SMALLEST_DISTANCE = 1e-6
