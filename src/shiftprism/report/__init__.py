"""Results in, tables and one self-contained HTML page out."""

from shiftprism.report._demo import each_shift, write_page
from shiftprism.report._paper_tables import paper_tables
from shiftprism.report._publish import FORMATS, html, publish, read, write_tables
from shiftprism.report._short import short_tables, standing, verdicts
from shiftprism.report._table import Cell, Table, to_csv, to_latex, to_markdown
from shiftprism.report._tables import calibration_table, detection_table, in_short

__all__ = [
    "FORMATS",
    "Cell",
    "Table",
    "calibration_table",
    "detection_table",
    "each_shift",
    "html",
    "in_short",
    "paper_tables",
    "publish",
    "read",
    "short_tables",
    "standing",
    "to_csv",
    "to_latex",
    "to_markdown",
    "verdicts",
    "write_page",
    "write_tables",
]
