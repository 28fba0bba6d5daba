"""What changes the input of a score first: the images, the features or the head, or several models made one.

An edit ends in Outputs (or in images), so every score, calibrator and metric applies after it as it did before.
"""

from shiftprism.edits.ensembles import average, expected_entropy, mutual_information, predictive_entropy
from shiftprism.edits.features import Dice, ReAct, ash, scale
from shiftprism.edits.images import EPSILONS, choose_epsilon, odin, odin_score, perturb

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
