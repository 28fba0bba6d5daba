"""The typical member of a class, as a mean: of its softmax, or of its features."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism.outputs import Outputs, read_fields
from shiftprism.scores._fitted import (
    Fitted,
    check_width,
    clamp_before_squaring,
    class_numbers,
    detach_float,
    finite_scores,
    widen,
)
from shiftprism.scores._moments import CHUNK, Sums


class KLMatching(Fitted):
    """−min_k KL(p ‖ d_k), (N,), d_k the mean softmax of ID data predicted as k (Hendrycks et al. 2022).

    Best fitted on held-out data, as its authors do; labels are not needed. A class never predicted has no template.
    """

    log_templates: Tensor

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike | None = None) -> Sums:
        """What a fit needs to know of these rows, (K, K) numbers; parts add up with `+`."""
        (logits,) = read_fields(outputs, "logits")
        # in chunks: the softmax of all rows would be a second (N, K)
        chunks = map(detach_float, logits.split(CHUNK))
        return sum((Sums.of(torch.softmax(one, 1), one.argmax(1), outputs.K) for one in chunks), start=_none(outputs))

    @classmethod
    def from_statistics(cls, statistics: Sums, dtype: torch.dtype = torch.float32) -> "KLMatching":
        """The score of summed statistics, its buffers in `dtype`."""
        templates = statistics.means[statistics.counts > 0]
        return cls({"log_templates": templates.clamp_min(torch.finfo(dtype).tiny).log().to(dtype)})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike | None = None) -> "KLMatching":
        """A template for each class that is predicted."""
        return cls.from_statistics(cls.statistics(outputs, labels), detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (logits,) = read_fields(outputs, "logits")
        check_width(logits, self.log_templates.shape[1], "classes")
        log_p = torch.log_softmax(logits, 1)
        p = log_p.exp()
        # Σ p ln p − Σ p ln d; p ln p is 0 at p = 0, where ln p may be −∞ and the product NaN
        negative_entropy = (p * log_p.clamp_min(torch.finfo(logits.dtype).min)).sum(1)
        divergence = negative_entropy[:, None] - p @ self.log_templates.to(p).T
        return finite_scores(-divergence.amin(1), outputs)


def _none(outputs: Outputs) -> Sums:
    return Sums.of(outputs[4].new_empty(0, outputs.K), classes=outputs.K)


class SHE(Fitted):
    """f · m_ŷ, (N,), m_k the mean feature of class k and ŷ the class predicted (Zhang et al. 2023).

    The means are of correctly classified samples. A class that has none takes all its samples, and a class without
    samples has m = 0, which is the lowest score for features after a ReLU.
    """

    patterns: Tensor

    @staticmethod
    def statistics(outputs: Outputs, labels: ArrayLike) -> Sums:
        """What a fit needs to know of these rows, (2K, D) numbers: of correct predictions, then wrong; `+` adds."""
        (features,) = read_fields(outputs, "features")
        numbers = class_numbers(labels, outputs)
        # one sum for two questions: class k predicted right is group k, predicted wrong is group K + k
        misclassified = (outputs.predictions != numbers).long()
        return Sums.of(features.detach(), numbers + outputs.K * misclassified, 2 * outputs.K)

    @classmethod
    def from_statistics(cls, statistics: Sums, dtype: torch.dtype = torch.float32) -> "SHE":
        """The score of summed statistics, its buffers in `dtype`."""
        correct, misclassified = statistics.means.chunk(2)
        has_correct = statistics.counts.chunk(2)[0] > 0
        return cls({"patterns": torch.where(has_correct[:, None], correct, misclassified).to(dtype)})

    @classmethod
    def fit(cls, outputs: Outputs, labels: ArrayLike) -> "SHE":
        """The mean features of labelled ID data, usually those the model was trained on."""
        return cls.from_statistics(cls.statistics(outputs, labels), detach_float(outputs[4]).dtype)

    def forward(self, outputs: Outputs) -> Tensor:
        (features,) = read_fields(outputs, "features")
        features = clamp_before_squaring(widen(check_width(features, self.patterns.shape[1])))
        return finite_scores((features * self.patterns.to(features)[outputs.predictions]).sum(1), outputs)
