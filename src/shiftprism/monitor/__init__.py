"""A stream of verdicts in, which shift it shows out: since when, with a promise that holds at every moment."""

from shiftprism.monitor._audit import Audited
from shiftprism.monitor._merged import Merged
from shiftprism.monitor._monitor import Monitor
from shiftprism.monitor._status import LEVELS, Episode, Status
from shiftprism.monitor._windows import Estimate

__all__ = ["LEVELS", "Audited", "Episode", "Estimate", "Merged", "Monitor", "Status"]
