"""Outputs in, calibrated logits out: fitted on validation data, with a report of the fit.

A fit never ends worse than it began on its own data, parameters that must be positive are so by construction, and the
class predicted keeps the largest logit for every calibrator here.
"""

from shiftprism.calibrators._calibrator import Calibrator, Report
from shiftprism.calibrators.alpha_beta import AlphaBeta
from shiftprism.calibrators.temperature import Temperature

__all__ = ["CALIBRATORS", "AlphaBeta", "Calibrator", "Report", "Temperature"]

CALIBRATORS: dict[str, type[Temperature] | type[AlphaBeta]] = {
    "temperature": Temperature,
    "alpha-beta": AlphaBeta,
}
