"""Models x shifts x scores and calibrators -> rows: what was measured, on what, with which weights and versions."""

from shiftprism.benchmark._digits import DIGIT_CORRUPTIONS, UNSEEN_DIGITS, digits
from shiftprism.benchmark._recommend import Recommendation, Standing, recommend
from shiftprism.benchmark._rows import (
    Evidence,
    Row,
    Summary,
    calibration_rows,
    detection_rows,
    gather,
    read_rows,
    summarise,
    write_rows,
)

__all__ = [
    "DIGIT_CORRUPTIONS",
    "UNSEEN_DIGITS",
    "Evidence",
    "Recommendation",
    "Row",
    "Standing",
    "Summary",
    "calibration_rows",
    "detection_rows",
    "digits",
    "gather",
    "read_rows",
    "recommend",
    "summarise",
    "write_rows",
]
