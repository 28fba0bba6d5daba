"""SNGP's head: a Gaussian process on the features, by random Fourier features and Laplace's approximation."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.heads._head import Head, check_features, norm, summed
from shiftprism.outputs import Outputs


class SNGP(Head):
    """Spectral-normalised neural Gaussian process (Liu et al. 2020), for a backbone with spectral norm (`…-sngp`).

    φ(f) = cos(Ω f + b), (M,), with M fixed random directions Ω, orthogonal in blocks of D, and phases b in [0, 2π);
    z = V φ(f) is learned by cross entropy; Σ = (ridge·I + Σ_i φ_i φ_iᵀ)⁻¹ over the last epoch; in evaluation mode

        logit_k = z_k / √(1 + factor·v),  v = ridge · φᵀ Σ φ, the same for all classes.

    `similarities` and `raw` hold z. Its published score is `msp`, and `entropy` in the tables of Tian et al. The
    constants are those of the authors' public CIFAR models: Ω's entries have standard deviation `std`; `factor`, where
    it is not given, is 20 for ten classes and 7.5 for a hundred. The paper's own table has another ridge (0.001) and a
    scale √(2/M) before the cosine. Their dropout of 0.1 belongs to the backbone and is not taken over.

    Σ is that of the last finished epoch: in a loop of your own call `start_epoch`, `after_step` and `end_epoch`.

    >>> head = SNGP(4, 3)
    >>> head.start_epoch(), head.after_step(torch.rand(8, 4), torch.zeros(8)), head.end_epoch()
    (None, None, None)
    >>> head.eval()(torch.rand(2, 4)).shape, head.covariance.shape
    (torch.Size([2, 3]), torch.Size([1024, 1024]))
    """

    directions: Tensor
    phases: Tensor
    precision: Tensor
    root: Tensor
    factor: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        random_features: int = 1024,
        std: float = 0.05,
        ridge: float = 1.0,
        factor: float | None = None,
    ) -> None:
        super().__init__()
        self._sizes(in_features, out_features)
        factor = (20.0 if out_features < 100 else 7.5) if factor is None else factor
        for name, value in (("random_features", random_features), ("std", std), ("ridge", ridge)):
            if not 0 < value < math.inf:
                raise wrong(name, "positive and finite", value, "leave it out for the published value")
        if not 0 <= factor < math.inf:
            raise wrong("factor", "0 or more and finite", factor, "leave it out for the published value")
        self.ridge = ridge
        self.output = nn.Parameter(torch.empty(out_features, random_features))
        nn.init.xavier_uniform_(self.output)
        self.register_buffer("directions", std * _orthogonal(random_features, in_features))
        self.register_buffer("phases", 2 * math.pi * torch.rand(random_features))
        # In float64: eigenvalues reach 10⁷ beside a ridge of 1, and rounding in float32 makes some of them negative.
        self.register_buffer("precision", torch.zeros(random_features, random_features, dtype=torch.float64))
        self.register_buffer("root", torch.eye(random_features) / math.sqrt(ridge))
        self.register_buffer("factor", torch.tensor(factor))

    @property
    def covariance(self) -> Tensor:
        """Σ, (M, M), of the last finished epoch; I/ridge, the prior, before the first."""
        return self.root.T @ self.root

    def outputs(self, features: Tensor) -> Outputs:
        random = self._random(features)
        raw = F.linear(random, self.output)
        logits = raw if self.training else raw / (1 + self.factor * self._variance(random)).sqrt()[:, None]
        return Outputs(features, norm(features), raw, raw, logits)

    def start_epoch(self) -> None:
        self.precision = self.precision.double().zero_()  # a model that was cast to float32 still sums in float64

    def after_step(self, features: Tensor, labels: Tensor) -> None:
        with torch.no_grad():
            random = self._random(features)
            self.precision += summed(random.T @ random)

    def end_epoch(self) -> None:
        # Σ = RᵀR with R the inverse of a Cholesky factor: v is then a sum of squares, never below 0 by rounding.
        identity = torch.eye(len(self.precision), dtype=torch.float64, device=self.precision.device)
        factor = torch.linalg.cholesky(self.precision.double() + self.ridge * identity)
        self.root.copy_(torch.linalg.solve_triangular(factor, identity, upper=False))

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": [self.output], "weight_decay": 0.0}]

    def scales(self, features: Tensor) -> dict[str, Tensor]:
        return {"variance": self._variance(self._random(features))}

    def _random(self, features: Tensor) -> Tensor:
        check_features(features, self.in_features)
        return F.linear(features, self.directions, self.phases).cos()

    def _variance(self, random: Tensor) -> Tensor:
        return self.ridge * F.linear(random, self.root).square().sum(1)


def _orthogonal(rows: int, columns: int) -> Tensor:
    """Rows as long as those of a standard normal matrix, orthogonal within each block of `columns` (Yu et al. 2016)."""
    blocks: Tensor = torch.linalg.qr(torch.randn(math.ceil(rows / columns), columns, columns)).Q
    # Q's signs are LAPACK's choice; the lengths' are ours, so that a direction and its opposite are equally likely.
    lengths = norm(torch.randn(rows, columns)) * torch.where(torch.rand(rows) < 0.5, -1.0, 1.0)
    return lengths[:, None] * blocks.flatten(0, 1)[:rows]
