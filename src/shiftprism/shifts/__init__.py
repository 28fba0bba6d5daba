"""Data that differs from what a model was trained on: in style, in concept, or in both.

A `Shift` makes its images when `make()` is called. `suite(name, data)` gives the shifts of the suites `covariate`,
`concept-splits` and `near-far` for CIFAR-10, CIFAR-100 and any other data set. `covariate`, `concept`, `near_far` and
`hold_out` make such shifts one by one. `make_shifted_copies` makes copies of images to fit scores and calibrators to.
"""

from shiftprism.rows import Kind
from shiftprism.shifts._copies import ShiftedCopy, make_shifted_copies
from shiftprism.shifts._shift import Shift, concept, covariate, hold_out, near_far
from shiftprism.shifts._splits import CIFAR100_SPLITS
from shiftprism.shifts._suite import SUITES, suite
from shiftprism.shifts._vectors import Vectors, concept_splits

__all__ = [
    "CIFAR100_SPLITS",
    "SUITES",
    "Kind",
    "Shift",
    "ShiftedCopy",
    "Vectors",
    "concept",
    "concept_splits",
    "covariate",
    "hold_out",
    "make_shifted_copies",
    "near_far",
    "suite",
]
