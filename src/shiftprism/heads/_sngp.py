"""SNGP's head: a Gaussian process on the features, by random Fourier features and Laplace's approximation."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftprism.heads._head import Head, check_settings, in_float32, norm, sum_over_processes
from shiftprism.outputs import Outputs


class SNGP(Head):
    """Spectral-normalised neural Gaussian process (Liu et al. 2020), for a backbone with spectral norm (`…-sngp`).

    φ(f) = cos(Ω f + b), (M,), with M fixed random directions Ω, orthogonal in blocks of D, and phases b in [0, 2π);
    z = V φ(f) is learned by cross entropy; Σ = (ridge·I + Σ_i φ_i φ_iᵀ)⁻¹ over the last epoch; in evaluation mode

        logit_k = z_k / √(1 + factor·v),  v = ridge · φᵀ Σ φ, the same for all classes.

    `similarities` and `raw` hold z. Its published score is `msp`; the tables of Tian et al. use `entropy`.

    The constants are those of the authors' public CIFAR models. Ω's entries have standard deviation `std`; `factor` is
    by default 20 below a hundred classes and 7.5 from there on. The paper's own table has another ridge (0.001) and a
    scale √(2/M) before the cosine. The authors' dropout of 0.1 belongs to the backbone and is not included.

    Σ is that of the last finished epoch: in your own loop, call `start_epoch`, `after_step` and `end_epoch`.

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
    undecayed = ("output",)

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
        self._set_sizes(in_features, out_features)
        factor = (20.0 if out_features < 100 else 7.5) if factor is None else factor
        positive = {"random_features": random_features, "std": std, "ridge": ridge}
        check_settings(positive, non_negative={"factor": factor})
        self.ridge = ridge
        self.output = nn.Parameter(torch.empty(out_features, random_features))
        nn.init.xavier_uniform_(self.output)
        self.register_buffer("directions", std * _orthogonal_directions(random_features, in_features))
        self.register_buffer("phases", 2 * math.pi * torch.rand(random_features))
        # In float64: eigenvalues reach 10⁷ beside a ridge of 1, and rounding in float32 makes some of them negative.
        self.register_buffer("precision", torch.zeros(random_features, random_features, dtype=torch.float64))
        # R with Σ = RᵀR; before the first epoch Σ is the prior, I/ridge
        self.register_buffer("root", torch.eye(random_features) / math.sqrt(ridge))
        # a buffer and no setting, so that a saved model keeps the factor it was built with
        self.register_buffer("factor", torch.tensor(factor))

    @property
    def covariance(self) -> Tensor:
        """Σ, (M, M), of the last finished epoch; I/ridge, the prior, before the first."""
        return self.root.T @ self.root

    @in_float32
    def outputs(self, features: Tensor) -> Outputs:
        phi = self._random_features(features)
        raw = F.linear(phi, self.output)
        # Σ is known only after an epoch, so training sees the plain logits
        logits = raw if self.training else raw / (1 + self.factor * self._variance(phi)).sqrt()[:, None]
        return Outputs(features, norm(features), raw, raw, logits)

    def start_epoch(self) -> None:
        # double() because .float() on the whole model casts this buffer too
        self.precision = self.precision.double().zero_()

    @in_float32
    def after_step(self, features: Tensor, labels: Tensor) -> None:
        with torch.no_grad():
            phi = self._random_features(features)
            self.precision += sum_over_processes(phi.T @ phi)

    def end_epoch(self) -> None:
        # Σ = RᵀR with R the inverse of a Cholesky factor: v is then a sum of squares, never below 0 by rounding.
        identity = torch.eye(len(self.precision), dtype=torch.float64, device=self.precision.device)
        factor = torch.linalg.cholesky(self.precision.double() + self.ridge * identity)
        self.root.copy_(torch.linalg.solve_triangular(factor, identity, upper=False))

    @in_float32
    def scales(self, features: Tensor) -> dict[str, Tensor]:
        return {"variance": self._variance(self._random_features(features))}

    def _random_features(self, features: Tensor) -> Tensor:
        """φ(f), (N, M)."""
        self._check_features(features)
        return F.linear(features, self.directions, self.phases).cos()

    def _variance(self, phi: Tensor) -> Tensor:
        """v, (N,): ridge · φᵀ Σ φ = ridge · |R φ|²."""
        return self.ridge * F.linear(phi, self.root).square().sum(1)


def _orthogonal_directions(rows: int, columns: int) -> Tensor:
    """Rows as long as those of a standard normal matrix, orthogonal within each block of `columns` (Yu et al. 2016)."""
    blocks: Tensor = torch.linalg.qr(torch.randn(math.ceil(rows / columns), columns, columns)).Q
    # LAPACK decides the signs of Q; random signs make a direction and its opposite equally likely.
    lengths = norm(torch.randn(rows, columns)) * torch.where(torch.rand(rows) < 0.5, -1.0, 1.0)
    return lengths[:, None] * blocks.flatten(0, 1)[:rows]
