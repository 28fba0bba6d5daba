"""Data that differs from what a model was trained on: shifts of style, of concept, or of both.

A `Shift` makes its images when asked. `suite(name, data)` gives the suites `covariate`, `concept-splits` and `near-far`
of CIFAR-10, of CIFAR-100 and of any data set; `covariate`, `concept`, `near_far` and `hold_out` are its parts.
"""

from shiftprism.shifts._shift import Kind, Shift, concept, covariate, hold_out, near_far
from shiftprism.shifts._splits import CIFAR100_SPLITS
from shiftprism.shifts._suite import SUITES, suite
from shiftprism.shifts._vectors import concept_splits

__all__ = [
    "CIFAR100_SPLITS",
    "SUITES",
    "Kind",
    "Shift",
    "concept",
    "concept_splits",
    "covariate",
    "hold_out",
    "near_far",
    "suite",
]
