"""Results in, tables and one self-contained HTML page out."""

from shiftprism.report._monitor import make_monitor_page
from shiftprism.report._page import Section, figure, page
from shiftprism.report._publish import FORMATS, make_page, publish, read_results, write_tables
from shiftprism.report._short import judgement_counts, rank_table, short_tables, standing
from shiftprism.report._table import Cell, Table, choose_rows, to_csv, to_latex, to_markdown
from shiftprism.report._tables import find_best, make_tables

__all__ = [
    "FORMATS",
    "Cell",
    "Section",
    "Table",
    "choose_rows",
    "figure",
    "find_best",
    "judgement_counts",
    "make_monitor_page",
    "make_page",
    "make_tables",
    "page",
    "publish",
    "rank_table",
    "read_results",
    "short_tables",
    "standing",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write_tables",
]
