"""The 15 corruptions of CIFAR-C, its 4 extras and 12 of ours, at five severities: batched, seeded, for any size.

Reference: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
2019.
"""

from shiftprism.corruptions._corruption import Corruption, check_images
from shiftprism.corruptions._frost import frost_source
from shiftprism.corruptions._layout import write_layout
from shiftprism.corruptions._severities import PARAMETERS, describe_parameters
from shiftprism.corruptions._table import (
    COMMON,
    CORRUPTIONS,
    EXTRA,
    FAMILIES,
    OWN_EXTRA,
    corrupt,
    describe_corruptions,
    find_corruption,
)

__all__ = [
    "COMMON",
    "CORRUPTIONS",
    "EXTRA",
    "FAMILIES",
    "OWN_EXTRA",
    "PARAMETERS",
    "Corruption",
    "check_images",
    "corrupt",
    "describe_corruptions",
    "describe_parameters",
    "find_corruption",
    "frost_source",
    "write_layout",
]
