"""Outputs in, calibrated logits out: fitted to validation data, with a report of the fit.

A fit is never worse than the model's own logits on the data it was fitted to, and it is applied only where it is better
on held-out folds of them too; otherwise the simpler candidate is kept. Where `keeps_predictions` is true, the
predicted class keeps the largest logit.
"""

from shiftprism.calibrators._affine import Dirichlet, Matrix, Vector
from shiftprism.calibrators._alpha_beta import AlphaBeta
from shiftprism.calibrators._calibrator import Calibrator, Report, as_outputs
from shiftprism.calibrators._exponential_map import ExponentialMap
from shiftprism.calibrators._monotone import Monotone
from shiftprism.calibrators._penalty import PAPER, Penalty
from shiftprism.calibrators._protocols import Fit, Line, cross_validate, paper_table
from shiftprism.calibrators._registry import CALIBRATORS, describe_calibrators
from shiftprism.calibrators._shift_aware import ShiftAware
from shiftprism.calibrators._store import load
from shiftprism.calibrators._temperature import Temperature
from shiftprism.calibrators._top_label import Histogram, Isotonic

__all__ = [
    "CALIBRATORS",
    "PAPER",
    "AlphaBeta",
    "Calibrator",
    "Dirichlet",
    "ExponentialMap",
    "Fit",
    "Histogram",
    "Isotonic",
    "Line",
    "Matrix",
    "Monotone",
    "Penalty",
    "Report",
    "ShiftAware",
    "Temperature",
    "Vector",
    "as_outputs",
    "cross_validate",
    "describe_calibrators",
    "load",
    "paper_table",
]
