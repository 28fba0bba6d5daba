"""Scores made of ranks: a p-value is the share of held-out ID inputs that score as low, whatever the score's scale.

p = (1 + #{reference ≤ s}) / (n + 1). For ID inputs exchangeable with the reference P(p ≤ t) ≤ t holds at any n, and
p-values of different scores can be combined: Fisher's rule adds their logarithms.
"""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, detach_float, finite_scores
from shiftprism.scores._geometric import g, h
from shiftprism.scores._neighbours import BANK, KNN, choose_k, draw_rows, gather_directions, kth_distance


class GTwoSided(Fitted):
    """min(1, 2 min(p, p′)), (N,): how far |f| is from the ID norms on either side, as a p-value.

    p counts the ID norms up to |f| and p′ those from |f| on. The paper's g assumes that shift lowers the norm. Noise
    can also raise it: g then takes shifted images for the most in-distribution ones, and this score does not.
    """

    norms: Tensor
    """(n,): sorted."""

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike | None = None, *, reference: Outputs | None = None) -> "GTwoSided":
        """Ranks among held-out ID data: `reference`, or `outputs` where there is none."""
        return cls({"norms": sort_reference(g(outputs if reference is None else reference))})

    def forward(self, outputs: Outputs) -> Tensor:
        norms = g(outputs)
        below, above = p_value(self.norms, norms), p_value(-self.norms.flip(0), -norms)
        return finite_scores((2 * torch.minimum(below, above)).clamp_max(1), outputs)


class Fisher(Fitted):
    """ln p_g + ln p_h, (N,): the paper's two scores joined by Fisher's rule, so that neither scale matters.

    >>> from shiftprism.heads import Linear
    >>> held_out = Linear(2, 3).outputs(torch.rand(99, 2))
    >>> bool((Fisher.fit(held_out)(held_out) <= 0).all())
    True
    """

    g: Tensor
    h: Tensor

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike | None = None, *, reference: Outputs | None = None) -> "Fisher":
        """Ranks among held-out ID data: `reference`, or `outputs` where there is none."""
        held_out = outputs if reference is None else reference
        return cls({"g": sort_reference(g(held_out)), "h": sort_reference(h(held_out))})

    def forward(self, outputs: Outputs) -> Tensor:
        return finite_scores(p_value(self.g, g(outputs)).log() + p_value(self.h, h(outputs)).log(), outputs)


class Prism(Fitted):
    """ln p_g + ln p_h + ln p_knn, (N,): Fisher's rule over norm, angle and the distance to ID features.

    Covariate shift lowers p_g, concept shift lowers p_h, and features far from all ID features lower p_knn (k as in
    `KNN`).
    """

    bank: Tensor
    g: Tensor
    h: Tensor
    knn: Tensor

    @classmethod
    def fit(
        cls,
        outputs: Outputs,
        labels: ArrayLike | None = None,
        *,
        reference: Outputs,
        k: int | None = None,
        bank: int = BANK,
        seed: int = 0,
    ) -> "Prism":
        """The bank of `outputs`, and ranks among `reference`: ID data in neither the bank nor the training set."""
        if reference is None:
            raise wrong("reference", "held-out ID Outputs", "None", "rows of the bank are their own nearest neighbours")
        (features,) = read_fields(outputs, "features")
        kept = gather_directions(features, draw_rows(outputs.N, bank, seed))
        k = choose_k(k, 50, len(kept), outputs.K)
        near = sort_reference(-kth_distance(read_fields(reference, "features")[0], kept, k))
        return cls(
            {"bank": kept, "g": sort_reference(g(reference)), "h": sort_reference(h(reference)), "knn": near}, k=k
        )

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read_fields(outputs, "features")
        return self.combine(outputs, -kth_distance(features, self.bank, int(self.settings["k"])))

    def combine(self, outputs: Outputs, knn: Tensor) -> Tensor:
        """The score, given the values of a `KNN` with the same bank (`shares_bank`): the search is most of the work."""
        parts = ((self.g, g(outputs)), (self.h, h(outputs)), (self.knn, knn))
        return finite_scores(torch.stack([p_value(among, values).log() for among, values in parts]).sum(0), outputs)

    def shares_bank(self, knn: KNN) -> bool:
        """Whether this KNN has the same bank and k."""
        return self.settings["k"] == knn.settings["k"] and torch.equal(self.bank, knn.bank)


def p_value(reference: Tensor, values: Tensor) -> Tensor:
    """(1 + #{reference ≤ s}) / (n + 1) for a sorted reference (n,) and values (N,): in (0, 1], never 0.

    >>> p_value(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.0, 9.0]))
    tensor([0.2500, 0.7500, 1.0000])
    """
    # one dtype for both: the wider of the two keeps ties as they are. bucketize exports to ONNX, searchsorted does not
    common = torch.promote_types(reference.dtype, values.dtype)
    counts = torch.bucketize(values.to(common).contiguous(), reference.to(common), right=True)
    return (1 + counts.to(common)) / (len(reference) + 1)


def sort_reference(values: Tensor) -> Tensor:
    """Scores of held-out ID data in the order that `p_value` wants."""
    return detach_float(values).sort().values
