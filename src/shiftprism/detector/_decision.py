"""From Outputs to a decision: one module of plain tensor operations, so that it exports."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from shiftprism.calibrators import Calibrator
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, Fitted, p_value

_TAIL = 0.1
"""The share of the values that the tail is fitted to."""
_FEWEST_IN_TAIL = 10
_PIECES = 128


class Parts(NamedTuple):
    """Everything that is decided about N inputs, as tensors."""

    label: Tensor
    """(N,) int64: the predicted class."""
    probabilities: Tensor
    """(N, K): calibrated, where there is a calibrator."""
    confidence: Tensor
    """(N,): the probability of the predicted class."""
    style: Tensor
    concept: Tensor
    combined: Tensor
    """(N,): ln p_style + ln p_concept, ranks among images of their own, by `LogRanks`: Fisher's rule."""
    p_covariate: Tensor
    p_concept: Tensor
    p_combined: Tensor
    kind: Tensor
    """(N,) int64: the place in `KINDS`."""


class Plain(nn.Module):
    """A score that needs no fit, by its name, as a module."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, outputs: Outputs) -> Tensor:
        return SCORES[self.name](outputs)


class Ranks(nn.Module):
    """The p-values of a score among held-out inputs: all of them, or those of the same predicted class.

    p = (1 + #{held-out ≤ s}) / (n + 1), where n counts the inputs that are compared with.
    """

    values: Tensor
    """(n,): sorted."""
    keys: Tensor
    """(n,): ascending; class · (n + 1) + place among all values. Empty where all classes are ranked together."""
    starts: Tensor
    """(K + 1,): where each class begins among the keys."""

    def __init__(self, values: Tensor, labels: Tensor | None = None, classes: int = 0) -> None:
        super().__init__()
        order = values.argsort(stable=True)
        self.register_buffer("values", values[order].clone())
        keys = torch.empty(0, dtype=torch.long)
        starts = torch.zeros(1, dtype=torch.long)
        if labels is not None:
            place = torch.arange(len(values))
            keys = (labels[order] * (len(values) + 1) + place).sort().values
            starts = torch.bincount(labels, minlength=classes).cumsum(0)
            starts = torch.cat([torch.zeros(1, dtype=torch.long), starts])
        self.register_buffer("keys", keys)
        self.register_buffer("starts", starts)

    def forward(self, values: Tensor, labels: Tensor | None = None) -> Tensor:
        if labels is None or not len(self.keys):
            return p_value(self.values, values)
        below = torch.bucketize(values.to(self.values).contiguous(), self.values, right=True)
        # the values up to this one have the first `below` places: those of its class have the smaller keys
        count = torch.bucketize(labels * (len(self.values) + 1) + below, self.keys) - self.starts[labels]
        return (1 + count).to(values) / (1 + self.starts[labels + 1] - self.starts[labels]).to(values)


class LogRanks(nn.Module):
    """ln p of a score among n held-out inputs, (N,): continuous, and continued below the lowest of them.

    Ranks alone end at 1/(n + 1): with sixty images, noise and snow would be as unusual as a slightly dark picture. Here
    ln p is linear between quantiles, and below the lowest tenth it falls with the score at the rate of that tenth: an
    exponential tail, whose mean excess is the maximum-likelihood estimate of its scale. Above the highest value it is
    constant.
    """

    values: Tensor
    """(n,): sorted."""
    starts: Tensor
    """(m + 1,): where each linear piece is anchored. The first piece is the tail, the last one the constant."""
    levels: Tensor
    """(m + 1,): ln p there."""
    slopes: Tensor
    """(m + 1,)."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values.sort().values.clone())
        for name, tensor in zip(("starts", "levels", "slopes"), _fit_pieces(self.values.double()), strict=True):
            self.register_buffer(name, tensor.to(values))

    def forward(self, scores: Tensor) -> Tensor:
        starts, levels, slopes = (tensor.to(scores) for tensor in (self.starts, self.levels, self.slopes))
        within = scores.clamp_max(starts[-1]).contiguous()
        piece = torch.bucketize(within, starts[1:], right=True)
        return levels[piece] + slopes[piece] * (within - starts[piece])


def _fit_pieces(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Starts, levels and slopes of `LogRanks` for sorted values."""
    n = len(values)
    lowest = min(n, max(_FEWEST_IN_TAIL, round(_TAIL * n)))
    places = torch.linspace(lowest, n, min(_PIECES, n - lowest + 1)).round().long()
    knots = values[places - 1].unique()
    levels = ((1 + torch.searchsorted(values, knots, right=True)) / (n + 1)).log()
    excess = float((knots[0] - values[:lowest]).mean())
    scale = excess or float(values.std(correction=0)) or 1.0  # where the lowest tie, or all of them
    rates = torch.cat([torch.tensor([1 / scale]).to(values), levels.diff() / knots.diff(), torch.zeros(1).to(values)])
    return torch.cat([knots[:1], knots]), torch.cat([levels[:1], levels]), rates


class Held(NamedTuple):
    """What the held-out inputs behind the p-values scored, (n,) each, in one order."""

    style: Tensor
    concept: Tensor
    label: Tensor
    confidence: Tensor


class Decision(nn.Module):
    """Outputs in, `Parts` out.

    An alarm where p_combined is at most the level; covariate where p_covariate is as well, otherwise concept: style is
    silent on unseen classes, while concept scores fall under covariate shift, too.
    """

    cut: Tensor
    """() or (K,): the largest p-value that raises the alarm, plus half a step, so that rounding decides nothing."""

    def __init__(
        self,
        covariate: Fitted,
        concept: "Fitted | Plain",
        calibrator: Calibrator | None,
        inside: tuple[Tensor, Tensor],
        classes: int,
    ) -> None:
        """`inside` are style and concept of the inputs that the combination is ranked among."""
        super().__init__()
        self.covariate, self.concept, self.calibrator = covariate, concept, calibrator
        self.inside_style, self.inside_concept = LogRanks(inside[0]), LogRanks(inside[1])
        self.classes = classes
        self.by_class = False

    def set_ranks(self, held: Held, by_class: bool, cut: Tensor) -> None:
        """Rank among these held-out inputs from now on, with alarms up to `cut`."""
        labels = held.label if by_class else None
        self.by_class = by_class
        self.style_ranks = Ranks(held.style, labels, self.classes)
        self.concept_ranks = Ranks(held.concept, labels, self.classes)
        self.combined_ranks = Ranks(self.combine(held.style, held.concept), labels, self.classes)
        self.register_buffer("cut", cut)

    def score(self, outputs: Outputs) -> tuple[Tensor, Tensor, Tensor]:
        """style, concept and combined, (N,) each."""
        style, concept = self.covariate(outputs), self.concept(outputs)
        return style, concept, self.combine(style, concept)

    def combine(self, style: Tensor, concept: Tensor) -> Tensor:
        """(N,): ln p_style + ln p_concept, Fisher's rule (others that were tried: docs/detector.md)."""
        combined: Tensor = self.inside_style(style) + self.inside_concept(concept)
        return combined

    def probabilities(self, outputs: Outputs) -> Tensor:
        """(N, K): calibrated where there is a calibrator, the model's own otherwise."""
        logits = outputs.logits if self.calibrator is None else self.calibrator(outputs)
        return torch.softmax(logits, 1)

    def forward(self, outputs: Outputs) -> Parts:
        label = outputs.logits.argmax(1)
        style, concept, combined = self.score(outputs)
        probabilities = self.probabilities(outputs)
        p_covariate, p_concept = self.style_ranks(style, label), self.concept_ranks(concept, label)
        p_combined = self.combined_ranks(combined, label)
        cut = self.cut[label] if self.by_class else self.cut
        alarm, shifted = p_combined <= cut, p_covariate <= cut
        return Parts(
            label=label,
            probabilities=probabilities,
            confidence=probabilities.gather(1, label[:, None])[:, 0],
            style=style,
            concept=concept,
            combined=combined,
            p_covariate=p_covariate,
            p_concept=p_concept,
            p_combined=p_combined,
            kind=torch.where(alarm, torch.where(shifted, 1, 2), 0),
        )
