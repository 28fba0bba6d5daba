"""Arrays in, numbers out: how well scores separate ID from OOD, how well calibrated confidences are, and intervals.

Every metric takes lists, NumPy arrays or tensors and returns a float. Scores are higher for ID. Nothing here needs
torch.

>>> from shiftprism.metrics import auroc, ece
>>> auroc(id=[3, 4, 5], ood=[1, 2, 4])
0.8333333333333334
>>> round(ece(probabilities=[[.9, .1], [.3, .7]], labels=[0, 0]), 3)
0.4
"""

from shiftprism.metrics._binned import (
    Reliability,
    ReliabilitySums,
    adaptive_ece,
    classwise_ece,
    debiased_ece,
    ece,
    reliability,
)
from shiftprism.metrics._interval import Interval, interval
from shiftprism.metrics._probabilities import bin_numbers
from shiftprism.metrics._ranks import aupr, aurc, auroc, fpr_at_tpr, tnr_at_tpr
from shiftprism.metrics._scoring import (
    BrierDecomposition,
    SampleScores,
    ScoringSums,
    accuracy,
    brier,
    brier_decomposition,
    nll,
    sample_scores,
)
from shiftprism.metrics._smooth import smooth_ece

__all__ = [
    "BrierDecomposition",
    "Interval",
    "Reliability",
    "ReliabilitySums",
    "SampleScores",
    "ScoringSums",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "aurc",
    "auroc",
    "bin_numbers",
    "brier",
    "brier_decomposition",
    "classwise_ece",
    "debiased_ece",
    "ece",
    "fpr_at_tpr",
    "interval",
    "nll",
    "reliability",
    "sample_scores",
    "smooth_ece",
    "tnr_at_tpr",
]
