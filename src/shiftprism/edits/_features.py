"""Features or class weights edited, and the head evaluated again: ReAct, ASH, SCALE and DICE.

All four were published for features after a ReLU, which are not negative, and for the score `energy`.
"""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism.classifier import evaluation_mode
from shiftprism.heads import Head, check_linear
from shiftprism.outputs import Outputs, read_fields

KINDS = ("s", "p", "b")


class ReAct(nn.Module):
    """f becomes min(f, c), and the head is evaluated again (Sun et al. 2021).

    c is a percentile of all entries of the ID features taken together: 90 in the paper. At 100 it is the largest of
    them, and the Outputs it was fitted to do not change.

    >>> from shiftprism.heads import Linear
    >>> head = Linear(2, 3)
    >>> outputs = head.outputs(torch.tensor([[0.0, 1.0], [2.0, 9.0]]))
    >>> ReAct.fit(outputs, head=head, percentile=50)(outputs).features
    tensor([[0.0000, 1.0000],
            [1.5000, 1.5000]])
    """

    threshold: Tensor

    def __init__(self, threshold: Tensor, head: Head) -> None:
        super().__init__()
        self.register_buffer("threshold", threshold)
        self.head = _freeze_copy(head)

    @classmethod
    def fit(cls, outputs: Outputs, *, head: Head, percentile: float = 90) -> "ReAct":
        """The threshold of ID data, usually those the model was trained on; the head is copied."""
        features = _read_features(outputs, head).detach()
        if not 0 <= percentile <= 100:
            raise wrong("percentile", "from 0 to 100", percentile, "90 is its authors' choice")
        # by NumPy, since torch.quantile refuses more than 2²⁴ entries
        values = features.to(torch.promote_types(features.dtype, torch.float32)).cpu().numpy()
        return cls(features.new_tensor(float(np.percentile(values, percentile))), head)

    def forward(self, outputs: Outputs) -> Outputs:
        features = _read_features(outputs, self.head)
        return _evaluate(outputs, self.head, torch.minimum(features, self.threshold.to(features)))


class Dice(nn.Module):
    """W loses the weights that contribute least to ID data, and the head is evaluated again (Sun & Li 2022).

    The contribution of w_kd is w_kd times the mean of feature d over ID data. Kept are those above the quantile
    `sparsity` of all K·D of them: 0.9 in the paper for CIFAR, 0.7 for ImageNet. At 0 all are kept, and the head stays
    the same. Features and norms do not change, so neither does g, nor do α(f) and β(f) of a head that has them.

    >>> from shiftprism.heads import Linear
    >>> head = Linear(4, 3)
    >>> outputs = head.outputs(torch.rand(9, 4))
    >>> int((Dice.fit(outputs, head=head, sparsity=0.5).head.weight != 0).sum())
    6
    """

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = _freeze_copy(head)

    @classmethod
    def fit(cls, outputs: Outputs, *, head: Head, sparsity: float = 0.9) -> "Dice":
        """The contributions on ID data, usually those the model was trained on; the head is copied, then masked."""
        features = _read_features(outputs, head).detach()
        if not 0 <= sparsity < 1:
            raise wrong("sparsity", "from 0 to below 1", sparsity, "0.9 drops 90 % of the weights")
        check_linear(head, outputs)
        fitted = cls(head)
        weight = fitted.head.get_parameter("weight")
        contributions = weight * features.mean(0, dtype=torch.promote_types(features.dtype, torch.float32)).to(weight)
        if sparsity > 0:  # at 0 the quantile is the smallest, which is not above itself
            threshold = float(np.quantile(contributions.float().cpu().numpy(), sparsity))
            weight.mul_(contributions > threshold)
        return fitted

    def forward(self, outputs: Outputs) -> Outputs:
        return _evaluate(outputs, self.head, _read_features(outputs, self.head))


def ash(outputs: Outputs, *, head: Head, kind: str = "s", percentile: float = 65) -> Outputs:
    """The smallest `percentile` % of an input's features become 0, and the head is evaluated (Djurisic et al. 2023).

    The k = D − round(D · percentile / 100) largest of D features are left, at least one; of equal ones the first. They
    are kept (kind "p"), multiplied by exp(s₁/s₂) ("s") or all set to s₁/k ("b"), with s₁ the sum of an input's features
    before pruning and s₂ after. At percentile 0 "p" changes nothing, "s" multiplies by e and "b" sets every feature to
    the mean.

    >>> from shiftprism.heads import Linear
    >>> head = Linear(4, 3)
    >>> outputs = head.outputs(torch.tensor([[1.0, 0.0, 2.0, 5.0]]))
    >>> ash(outputs, head=head, kind="b", percentile=50).features
    tensor([[0., 0., 4., 4.]])
    """
    choice("kind", kind, KINDS)
    features = _read_features(outputs, head, positive=kind != "p")
    total, (largest, places) = features.sum(1, keepdim=True), _largest(features, percentile)
    if kind == "b":
        largest = (total / largest.shape[1]).expand_as(largest)
    elif kind == "s":
        largest = largest * _stretch(total, largest)
    return _evaluate(outputs, head, torch.zeros_like(features).scatter(1, places, largest))


def scale(outputs: Outputs, *, head: Head, percentile: float = 85) -> Outputs:
    """f becomes f · exp(s₁/s₂), and the head is evaluated again: ASH-S without its pruning (Xu et al. 2024, SCALE).

    s₁ is the sum of an input's features and s₂ that of its k largest, k as for `ash`. Only |f| changes, not its
    direction, so h stays as it was. At percentile 0 every feature is multiplied by e.

    >>> from shiftprism.heads import Linear
    >>> head = Linear(2, 3)
    >>> scale(head.outputs(torch.tensor([[1.0, 1.0]])), head=head, percentile=50).features.log()
    tensor([[2., 2.]])
    """
    features = _read_features(outputs, head, positive=True)
    largest, _ = _largest(features, percentile)
    return _evaluate(outputs, head, features * _stretch(features.sum(1, keepdim=True), largest))


def _largest(features: Tensor, percentile: float) -> tuple[Tensor, Tensor]:
    """The k largest features of each input and their places, (N, k) each; of equal ones the first."""
    if not 0 <= percentile < 100:
        raise wrong("percentile", "from 0 to below 100", percentile, "65 prunes 65 % of the features")
    width = features.shape[1]
    count = max(1, width - round(width * percentile / 100))
    # A stable sort and no topk, which may break ties differently in another batch: ASH-B fills zeros that are tied.
    values, places = features.sort(dim=1, descending=True, stable=True)
    return values[:, :count], places[:, :count]


def _stretch(total: Tensor, largest: Tensor) -> Tensor:
    """exp(s₁/s₂), (N, 1); the ratio is 0 where all features are 0."""
    limits = torch.finfo(total.dtype)
    ratio = total / largest.sum(1, keepdim=True).clamp_min(limits.tiny)
    # where k is a tiny part of D the exponential would be infinite, and 0 · ∞ is NaN
    return ratio.clamp_max(math.log(limits.max) / 2).exp()


def _read_features(outputs: Outputs, head: Head, positive: bool = False) -> Tensor:
    """The features, if they fit this head and, for a method that has no meaning otherwise, are not negative."""
    (features,) = read_fields(outputs, "features")
    if not isinstance(head, Head) or head.in_features != outputs.D:
        got = f"one of {head.in_features} features" if isinstance(head, Head) else type(head).__name__
        raise wrong("head", f"a shiftprism head of {outputs.D} features", got, "pass classifier.head")
    if positive and not torch.compiler.is_compiling() and bool((features < 0).any()):
        got = f"features down to {float(features.min()):.3g}"
        raise wrong("outputs", "of features that are not negative, as after a ReLU,", got, 'use ReAct or ash(kind="p")')
    return features


def _evaluate(outputs: Outputs, head: Head, features: Tensor) -> Outputs:
    """The head's Outputs in evaluation mode, whichever mode it is in, with the style of the image as it was."""
    if not head.training:  # nothing to switch, so that torch.export has nothing to trace
        return head.outputs(features)._replace(style=outputs[5])
    with evaluation_mode(head):
        return head.outputs(features)._replace(style=outputs[5])


def _freeze_copy(head: Head) -> Head:
    """A copy of the head, which neither training nor a move of the model to another device changes."""
    return copy.deepcopy(head).eval().requires_grad_(False)
