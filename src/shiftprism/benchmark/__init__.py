"""Models x shifts x scores and calibrators -> rows: what was measured, on what, with which weights and versions."""

from shiftprism.benchmark._bundle import bundled
from shiftprism.benchmark._digits import DIGIT_CORRUPTIONS, UNSEEN_DIGITS, digits
from shiftprism.benchmark._evidence import Evidence, Source, evidence, gather
from shiftprism.benchmark._measure import Measurement, measure
from shiftprism.benchmark._plan import MODELS, Plan, make_plan
from shiftprism.benchmark._recommend import Recommendation, Standing, recommend
from shiftprism.benchmark._results import RESAMPLES, Results
from shiftprism.benchmark._rows import Row, Summary, read_rows, summarise, write_rows
from shiftprism.benchmark._study import Outcome, collect, study

__all__ = [
    "DIGIT_CORRUPTIONS",
    "MODELS",
    "RESAMPLES",
    "UNSEEN_DIGITS",
    "Evidence",
    "Measurement",
    "Outcome",
    "Plan",
    "Recommendation",
    "Results",
    "Row",
    "Source",
    "Standing",
    "Summary",
    "bundled",
    "collect",
    "digits",
    "evidence",
    "gather",
    "make_plan",
    "measure",
    "read_rows",
    "recommend",
    "study",
    "summarise",
    "write_rows",
]
