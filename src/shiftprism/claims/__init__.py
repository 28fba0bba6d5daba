"""The paper's claims as predicates over rows, with a judgement of each; and the numbers of its tables.

>>> from shiftprism.rows import Results, Row
>>> def row(score, value):
...     where = "vanilla", "mine", "small", "vanilla", 0, "held-out", "fog", "covariate", 1
...     return Row(*where, score, "auroc", value, 0.01, 500, "", "", "")
>>> findings = judge(Results.without_resamples([row("g", 0.7), row("h", 0.8)]))
>>> judgements = {finding.claim.name: finding.judgement for finding in findings}
>>> judgements["vanilla-prefers-concept-corrupted"], judgements["training-time"]
('holds', 'not measured')
"""

from shiftprism._errors import wrong
from shiftprism.claims._claim import JUDGEMENTS, Claim, Estimate, Finding, Judgement, judge_claim
from shiftprism.claims._list import CLAIMS
from shiftprism.claims._paper import PAPER, PaperNumber, paper_value
from shiftprism.claims._store import SIGNS, count_judgements, read_findings, to_json, to_markdown, write_findings
from shiftprism.rows import Measured, Results

__all__ = [
    "CLAIMS",
    "JUDGEMENTS",
    "PAPER",
    "SIGNS",
    "Claim",
    "Estimate",
    "Finding",
    "Judgement",
    "PaperNumber",
    "count_judgements",
    "judge",
    "paper_value",
    "read_findings",
    "to_json",
    "to_markdown",
    "write_findings",
]


def judge(results: Results) -> list[Finding]:
    """A finding for each claim and each ID data set (and protocol) among the rows."""
    if not results.rows:
        raise wrong("results", "rows of a benchmark", "none", "run `shiftprism benchmark` first")
    return [judge_claim(claim, measured) for measured in Measured.split(results) for claim in CLAIMS]
