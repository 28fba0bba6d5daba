"""Metrics that depend on the order of the scores alone: an increasing map of the scores changes no value."""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, choice, vector, wrong

Side = Literal["id", "ood"]


def auroc(id: ArrayLike, ood: ArrayLike) -> float:
    """Area under the ROC curve: P(s_id > s_ood) + P(s_id = s_ood) / 2 for a random pair.

    `id` (N,) and `ood` (M,) hold scores, higher = more ID. Which of the two is called positive changes nothing here;
    `auroc(id, ood) = 1 − auroc(ood, id)`. Counting is in whole numbers, so a tie is exactly half.
    O((N + M) log(N + M)).

    Reference: Hanley & McNeil 1982, "The meaning and use of the area under a ROC curve".

    >>> auroc([2, 3], [1, 2])  # three pairs won, one tied
    0.875
    """
    # Both sides sorted: searchsorted then walks through memory in order, several times faster than random look-ups.
    inside, outside = np.sort(vector("id", id)), np.sort(vector("ood", ood))
    lower = np.searchsorted(outside, inside, "left").sum()
    not_higher = np.searchsorted(outside, inside, "right").sum()
    return (int(lower) + int(not_higher)) / (2 * len(inside) * len(outside))


def aupr(id: ArrayLike, ood: ArrayLike, positive: Side = "id") -> float:
    """Average precision: Σ_k (R_k − R_{k−1}) P_k over the distinct thresholds, from the highest down.

    `id` (N,) and `ood` (M,) hold scores, higher = more ID. `positive="ood"` ranks the negated scores with OOD as the
    positive class. This is the step sum (scikit-learn's `average_precision_score`), not the trapezoid, which is too
    optimistic. It depends on the ratio N : M; a random score gives the share of the positive class, not one half.

    >>> aupr([2, 3], [1, 2])
    0.8333333333333333
    """
    positives, negatives = _sides(id, ood, positive)
    thresholds, counts = np.unique(positives, return_counts=True)
    true_positives = np.cumsum(counts[::-1])[::-1]
    false_positives = len(negatives) - np.searchsorted(np.sort(negatives), thresholds, "left")
    precision = true_positives / (true_positives + false_positives)
    return float(np.sum(counts * precision) / len(positives))


def tnr_at_tpr(id: ArrayLike, ood: ArrayLike, tpr: float = 0.95) -> float:
    """Share of OOD rejected while at least `tpr` of ID is accepted: P(s_ood < t), the paper's TNR@TPR95.

    t is the largest threshold with P(s_id ≥ t) ≥ `tpr`. A tie with t is accepted, so constant scores give 0.
    Equal to `1 − fpr_at_tpr(id, ood, tpr)`.

    >>> tnr_at_tpr(range(20), [-1, 0, 1, 2])  # 19 of 20 are ≥ 1, so t = 1
    0.5
    """
    return 1.0 - fpr_at_tpr(id, ood, tpr)


def fpr_at_tpr(id: ArrayLike, ood: ArrayLike, tpr: float = 0.95, positive: Side = "id") -> float:
    """Share of the negative class that is taken for positive at the threshold that finds `tpr` of the positive class.

    - `positive="id"` (ODIN, the paper): t is the largest threshold with P(s_id ≥ t) ≥ `tpr`; the value is
      P(s_ood ≥ t), the OOD accepted along with the ID.
    - `positive="ood"` (OpenOOD 1.5, pytorch-ood): t is the smallest threshold with P(s_ood ≤ t) ≥ `tpr`; the value is
      P(s_id ≤ t), the ID flagged along with the OOD.

    The two are different numbers, not two names of one: the same scores can give .53 and .96. The first looks at the
    lower tail of ID, the second at the upper tail of OOD. Say which one a table shows. Constant scores give 1 in both.

    >>> id, ood = [5, 6, 7, 8], [1, 2, 3, 7]
    >>> fpr_at_tpr(id, ood), fpr_at_tpr(id, ood, positive="ood")
    (0.25, 0.75)
    """
    positives, negatives = _sides(id, ood, positive)
    if not 0 < tpr <= 1:
        raise wrong("tpr", "in (0, 1]", tpr, "pass .95 to find 95 % of the positive class")
    # 0.07 · 100 is 7.000000000000001 in floating point; the slack keeps that at 7 samples.
    needed = math.ceil(tpr * len(positives) * (1 - 1e-12))
    position = len(positives) - needed
    threshold = np.partition(positives, position)[position]
    return float(np.mean(negatives >= threshold))


def aurc(confidences: ArrayLike, correct: ArrayLike) -> float:
    """Area under the risk-coverage curve: mean over n = 1 … N of the error rate among the n most confident.

    `confidences` (N,) is any score that is higher where the model is surer; `correct` (N,) is 0/1 or boolean. Lower is
    better; 0 needs a model without errors. Equal confidences share their errors evenly, which is the expectation over
    all orders of the tied samples: the order of the input never matters, constant confidences give the error rate.

    Reference: Geifman, Uziel & El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers".

    >>> aurc([.9, .8, .7, .6], [True, True, False, True])  # risks 0, 0, 1/3, 1/4
    0.14583333333333331
    """
    scores, right = vector("confidences", confidences), vector("correct", correct)
    if right.shape != scores.shape:
        raise wrong("correct", f"of shape {scores.shape}", f"shape {right.shape}", "pass one for each confidence")
    if not np.isin(right, (0, 1)).all():
        raise wrong(
            "correct", "0 or 1", f"values from {right.min():g} to {right.max():g}", "pass predictions == labels"
        )
    # every sample of a group of equal confidences gets the error rate of that group
    _, tied, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    errors = np.repeat(np.bincount(tied, 1 - right) / counts, counts)
    return float(np.mean(np.cumsum(errors) / np.arange(1, len(errors) + 1)))


def _sides(id: ArrayLike, ood: ArrayLike, positive: Side) -> tuple[Floats, Floats]:
    """Scores of the positive class and of the other one, higher = more positive."""
    inside, outside = vector("id", id), vector("ood", ood)
    return (inside, outside) if choice("positive", positive, ("id", "ood")) == "id" else (-outside, -inside)
