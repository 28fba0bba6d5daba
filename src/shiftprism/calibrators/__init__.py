"""Outputs in, calibrated logits out: fitted on validation data, with a report of the fit.

A fit never ends worse than it began on its own data, and parameters that must be positive are so by construction.
Where `keeps_predictions` is true, the class predicted keeps the largest logit.
"""

from pathlib import Path

from shiftprism.calibrators._calibrator import Calibrator, Report
from shiftprism.calibrators._path import PAPER, Penalty
from shiftprism.calibrators._store import load_as
from shiftprism.calibrators.affine import Dirichlet, Matrix, Vector
from shiftprism.calibrators.alpha_beta import AlphaBeta
from shiftprism.calibrators.exponential import ExponentialMap
from shiftprism.calibrators.monotone import Monotone
from shiftprism.calibrators.protocol import Line, cross_validate, paper_table
from shiftprism.calibrators.temperature import Temperature
from shiftprism.calibrators.top_label import Histogram, Isotonic

__all__ = [
    "CALIBRATORS",
    "PAPER",
    "AlphaBeta",
    "Calibrator",
    "Dirichlet",
    "ExponentialMap",
    "Histogram",
    "Isotonic",
    "Line",
    "Matrix",
    "Monotone",
    "Penalty",
    "Report",
    "Temperature",
    "Vector",
    "cross_validate",
    "load",
    "paper_table",
]

CALIBRATORS: dict[str, type[Calibrator]] = {
    "temperature": Temperature,
    "vector": Vector,
    "matrix": Matrix,
    "dirichlet": Dirichlet,
    "alpha-beta": AlphaBeta,
    "exponential-map": ExponentialMap,
    "monotone": Monotone,
    "isotonic": Isotonic,
    "histogram": Histogram,
}


def load(folder: str | Path, model: str | None = None) -> Calibrator:
    """The calibrator that `Calibrator.save` wrote to `folder`; with `model`, only one fitted to that fingerprint.

    Strict: a missing, extra or mis-shaped tensor is an error that names it. Nothing is unpickled.
    """
    return load_as({kind.__name__: kind for kind in CALIBRATORS.values()}, folder, model)
