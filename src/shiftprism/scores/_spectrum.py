"""One score for both kinds of shift: ranks of two concept scores and of style."""

import math

from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, finite_scores
from shiftprism.scores._logits import gen
from shiftprism.scores._neighbours import BANK, KNN, kth_distance
from shiftprism.scores._ranks import p_value, sort_reference
from shiftprism.scores._style import Contrast, Shifted

_NEAR = 0.5
_UNUSUAL = 0.15
"""Both chosen on held-out images and extras (docs/style.md, tools/spectrum_parts.py)."""


class Spectrum(Fitted):
    """ln p_gen + near · ln p_knn + min(0, ln p_style − ln unusual), (N,): ranks of two concept scores and of style.

    Unseen classes lower p_gen and p_knn; covariate shift lowers p_style, and often the other two. Style counts where it
    is among the lowest `unusual` of clean images: the others are judged by concept alone, since style that is merely
    below average says nothing and would only add noise. near = 1 and unusual = 1 is Fisher's rule.

    A p-value of the sum needs held-out ID data of its own: among `reference`, where its parts were ranked, too many
    fresh ID inputs would rank low.
    """

    bank: Tensor
    centre: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    gen: Tensor
    """(n,): sorted, as are the next two: the values of the held-out data."""
    knn: Tensor
    style: Tensor

    @classmethod
    def fit(
        cls,
        outputs: Outputs,
        labels: ArrayLike | None = None,
        *,
        reference: Outputs,
        shifted: Shifted,
        k: int | None = None,
        bank: int = BANK,
        seed: int = 0,
        near: float = _NEAR,
        unusual: float = _UNUSUAL,
    ) -> "Spectrum":
        """The bank of `outputs` and their contrast with `shifted` copies of them; ranks among `reference`.

        `reference` is ID data that is in neither of the two and was not trained on. k and bank are those of `KNN`.
        """
        if not 0 <= near < math.inf:
            raise wrong("near", "a finite number of at least 0", near, f"{_NEAR} is the default")
        if not 0 < unusual <= 1:
            raise wrong("unusual", "a share in (0, 1]", unusual, f"{_UNUSUAL} is the default")
        if reference is None:
            advice = "rows of the bank and of the contrast look more in-distribution than they are"
            raise wrong("reference", "held-out ID Outputs", "None", advice)
        neighbours = KNN.fit(outputs, k=k, bank=bank, seed=seed)
        k = int(neighbours.settings["k"])
        contrast = Contrast.fit(outputs, shifted)
        values = _parts(reference, neighbours.bank, k, contrast)
        ranks = {name: sort_reference(part) for name, part in zip(("gen", "knn", "style"), values, strict=True)}
        return cls({"bank": neighbours.bank, **contrast._asdict(), **ranks}, k=k, near=near, unusual=unusual)

    def forward(self, outputs: Outputs) -> Tensor:
        contrast = Contrast(self.centre, self.scale, self.weight, self.bias)
        parts = _parts(outputs, self.bank, int(self.settings["k"]), contrast)
        ranked = zip((self.gen, self.knn, self.style), parts, strict=True)
        log_gen, log_knn, log_style = (p_value(own, part).log() for own, part in ranked)
        # files of older versions have neither setting, and were fitted as Fisher's rule
        near, unusual = (float(self.settings.get(name, 1.0)) for name in ("near", "unusual"))
        return finite_scores(log_gen + near * log_knn + (log_style - math.log(unusual)).clamp_max(0), outputs)


def _parts(outputs: Outputs, bank: Tensor, k: int, contrast: Contrast) -> tuple[Tensor, Tensor, Tensor]:
    (features,) = read_fields(outputs, "features")
    style = contrast.log_odds(contrast.standardise(outputs))
    return gen(outputs), -kth_distance(features, bank, k).to(features.dtype), style
