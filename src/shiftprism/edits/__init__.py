"""Changes made before a score is computed: to the images, the features or the head; several views or models averaged.

An edit returns Outputs (or images), so every score, calibrator and metric can be used after it.
"""

from shiftprism.edits._ensembles import average, expected_entropy, mutual_information, predictive_entropy
from shiftprism.edits._features import Dice, ReAct, ash, scale
from shiftprism.edits._images import EPSILONS, choose_epsilon, odin, odin_score, perturb
from shiftprism.edits._views import average_views, predict_mirrored

__all__ = [
    "EPSILONS",
    "Dice",
    "ReAct",
    "ash",
    "average",
    "average_views",
    "choose_epsilon",
    "expected_entropy",
    "mutual_information",
    "odin",
    "odin_score",
    "perturb",
    "predict_mirrored",
    "predictive_entropy",
    "scale",
]
