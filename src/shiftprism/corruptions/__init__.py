"""The 15 corruptions of CIFAR-C and its 4 extras, at five severities: batched, seeded, for any size, grey or RGB.

Facts: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", 2019.
"""

from shiftprism.corruptions._door import Corruption
from shiftprism.corruptions._layout import write_layout
from shiftprism.corruptions._named import COMMON, CORRUPTIONS, EXTRA, corrupt

__all__ = ["COMMON", "CORRUPTIONS", "EXTRA", "Corruption", "corrupt", "write_layout"]
