"""Changes made before a score is computed: to the images, to the features or the head, or several models averaged.

An edit returns Outputs (or images), so every score, calibrator and metric can be used after it.
"""

from shiftprism.edits._ensembles import average, expected_entropy, mutual_information, predictive_entropy
from shiftprism.edits._features import Dice, ReAct, ash, scale
from shiftprism.edits._images import EPSILONS, choose_epsilon, odin, odin_score, perturb

__all__ = [
    "EPSILONS",
    "Dice",
    "ReAct",
    "ash",
    "average",
    "choose_epsilon",
    "expected_entropy",
    "mutual_information",
    "odin",
    "odin_score",
    "perturb",
    "predictive_entropy",
    "scale",
]
