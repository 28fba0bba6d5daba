"""The paper's claims as predicates over rows, with a verdict on each; and the numbers of its tables.

>>> from shiftprism.benchmark import Results, Row
>>> def row(score, value):
...     where = "vanilla", "mine", "small", "vanilla", 0, "held-out", "fog", "covariate", 1
...     return Row(*where, score, "auroc", value, 0.01, 500, "", "", "")
>>> found = {one.claim.name: one for one in judge(Results.without_resamples([row("g", 0.7), row("h", 0.8)]))}
>>> found["vanilla-prefers-concept-corrupted"].verdict, found["training-time"].verdict
('holds', 'not measured')
"""

from shiftprism._checks import wrong
from shiftprism.benchmark import Results
from shiftprism.benchmark._bootstrap import Measured
from shiftprism.claims._claim import Claim, Estimate, Finding, Verdict, find
from shiftprism.claims._list import CLAIMS
from shiftprism.claims._paper import PAPER, PaperNumber, paper_value
from shiftprism.claims._store import SIGNS, as_json, as_markdown, counted, read, write

__all__ = [
    "CLAIMS",
    "PAPER",
    "SIGNS",
    "Claim",
    "Estimate",
    "Finding",
    "PaperNumber",
    "Verdict",
    "as_json",
    "as_markdown",
    "counted",
    "judge",
    "paper_value",
    "read",
    "write",
]


def judge(results: Results) -> list[Finding]:
    """A finding for each claim and each ID data set (and protocol) among the rows."""
    if not results.rows:
        raise wrong("results", "rows of a benchmark", "none", "run `shiftprism benchmark` first")
    return [find(claim, measured) for measured in Measured.split(results) for claim in CLAIMS]
