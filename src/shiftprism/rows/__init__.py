"""Measured numbers with their resamples and intervals, and the folder they are kept in. Nothing here needs torch."""

from shiftprism.rows._effect import DRAWS, LEVEL, Effect, adjust_p_values
from shiftprism.rows._folder import CellFolder, ResultsFolder, set_file
from shiftprism.rows._left_out import why_left_out
from shiftprism.rows._measured import Key, Measured
from shiftprism.rows._names import display_name, file_stem, is_own_score
from shiftprism.rows._results import RESAMPLES, Results, find_fault
from shiftprism.rows._row import Condition, Kind, Row, Source, Summary, make_row, read_rows, write_rows

__all__ = [
    "DRAWS",
    "LEVEL",
    "RESAMPLES",
    "CellFolder",
    "Condition",
    "Effect",
    "Key",
    "Kind",
    "Measured",
    "Results",
    "ResultsFolder",
    "Row",
    "Source",
    "Summary",
    "adjust_p_values",
    "display_name",
    "file_stem",
    "find_fault",
    "is_own_score",
    "make_row",
    "read_rows",
    "set_file",
    "why_left_out",
    "write_rows",
]
