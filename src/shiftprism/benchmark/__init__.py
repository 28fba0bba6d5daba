"""Models × shifts × scores and calibrators -> rows in a folder. It writes rows, and nothing else.

Names that need torch load on first use: the command line reads the fields of `Plan` for its flags without it.
"""

from typing import TYPE_CHECKING

from shiftprism._lazy import load_lazily
from shiftprism.benchmark._plan import MODELS, Plan

if TYPE_CHECKING:
    from shiftprism.benchmark._study import Outcome, study
    from shiftprism.benchmark._suites import UNSEEN_DIGITS, take_evenly

__all__ = ["MODELS", "UNSEEN_DIGITS", "Outcome", "Plan", "study", "take_evenly"]

__getattr__, __dir__ = load_lazily(
    __name__,
    __all__,
    {
        "shiftprism.benchmark._study": ("Outcome", "study"),
        "shiftprism.benchmark._suites": ("UNSEEN_DIGITS", "take_evenly"),
    },
)
