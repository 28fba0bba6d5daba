"""One score for both kinds of shift: ranks of two concept scores and of style, joined by Fisher's rule."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import Fitted, finite_scores
from shiftprism.scores._logits import gen
from shiftprism.scores._neighbours import BANK, KNN, kth_distance
from shiftprism.scores._ranks import p_value, sort_reference
from shiftprism.scores._style import Contrast, Shifted


class Spectrum(Fitted):
    """ln p_gen + ln p_knn + ln p_style, (N,): Fisher's rule over two concept scores and style.

    Unseen classes lower p_gen and p_knn; covariate shift lowers p_style, and often the other two.

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
    ) -> "Spectrum":
        """The bank of `outputs` and their contrast with `shifted` copies of them; ranks among `reference`.

        `reference` is ID data that is in neither of the two and was not trained on. k and bank are those of `KNN`.
        """
        if reference is None:
            advice = "rows of the bank and of the contrast look more in-distribution than they are"
            raise wrong("reference", "held-out ID Outputs", "None", advice)
        near = KNN.fit(outputs, k=k, bank=bank, seed=seed)
        k = int(near.settings["k"])
        contrast = Contrast.fit(outputs, shifted)
        values = _parts(reference, near.bank, k, contrast)
        ranks = {name: sort_reference(part) for name, part in zip(("gen", "knn", "style"), values, strict=True)}
        return cls({"bank": near.bank, **contrast._asdict(), **ranks}, k=k)

    def forward(self, outputs: Outputs) -> Tensor:
        contrast = Contrast(self.centre, self.scale, self.weight, self.bias)
        parts = _parts(outputs, self.bank, int(self.settings["k"]), contrast)
        logs = [p_value(own, part).log() for own, part in zip((self.gen, self.knn, self.style), parts, strict=True)]
        return finite_scores(torch.stack(logs).sum(0), outputs)


def _parts(outputs: Outputs, bank: Tensor, k: int, contrast: Contrast) -> tuple[Tensor, Tensor, Tensor]:
    (features,) = read_fields(outputs, "features")
    style = contrast.log_odds(contrast.standardise(outputs))
    return gen(outputs), -kth_distance(features, bank, k).to(features.dtype), style
