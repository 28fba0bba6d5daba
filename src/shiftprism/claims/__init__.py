"""The paper's claims as predicates over rows, with a judgement of each; and the numbers of its tables.

>>> from shiftprism.rows import Results, Row
>>> def row(score, value, seed):
...     where = "vanilla", "mine", "small", "vanilla", seed, "held-out", "fog", "covariate", 1
...     return Row(*where, score, "auroc", value, 0.001, 500, "", "", "")
>>> rows = [row(score, value, seed) for score, value in (("g", 0.7), ("h", 0.8)) for seed in range(3)]
>>> findings = judge(Results.without_resamples(rows))
>>> judgements = {finding.claim.name: finding.judgement for finding in findings}
>>> judgements["vanilla-prefers-concept-corrupted"], judgements["training-time"]
('holds', 'not measured')
"""

from shiftprism._errors import wrong
from shiftprism.claims._claim import JUDGEMENTS, Claim, Estimate, Finding, Judgement, judge_claim
from shiftprism.claims._list import CLAIMS
from shiftprism.claims._paper import PAPER, PUBLISHED_IMAGES, PaperNumber, paper_value
from shiftprism.claims._power import MOST_SEEDS, POWER, Noise, OpenClaim, open_claims
from shiftprism.claims._runs import (
    RUN_MINUTES,
    RunStep,
    plan_runs,
    runs_to_markdown,
    seeds_to_json,
    seeds_to_markdown,
)
from shiftprism.claims._store import SIGNS, count_judgements, read_findings, to_json, to_markdown, write_findings
from shiftprism.rows import Measured, Results, ResultsFolder

__all__ = [
    "CLAIMS",
    "JUDGEMENTS",
    "MOST_SEEDS",
    "PAPER",
    "PAPER_DATA",
    "POWER",
    "PUBLISHED_IMAGES",
    "RUN_MINUTES",
    "SIGNS",
    "Claim",
    "Estimate",
    "Finding",
    "Judgement",
    "Noise",
    "OpenClaim",
    "PaperNumber",
    "RunStep",
    "count_judgements",
    "judge",
    "judge_paper_data",
    "open_claims",
    "paper_value",
    "plan_runs",
    "read_findings",
    "runs_to_markdown",
    "seeds_to_json",
    "seeds_to_markdown",
    "to_json",
    "to_markdown",
    "write_findings",
]

PAPER_DATA = ("cifar10", "cifar100", "digits")
"""The ID data that the claims are shown for: the paper's own, and the digits that stand in for them."""


def judge(results: Results) -> list[Finding]:
    """A finding for each claim and each ID data set (and protocol) among the rows."""
    if not results.rows:
        raise wrong("results", "rows of a benchmark", "none", "run `shiftprism benchmark` first")
    return [judge_claim(claim, measured) for measured in Measured.split(results) for claim in CLAIMS]


def judge_paper_data(results: Results, folder: ResultsFolder) -> list[Finding]:
    """The findings on `PAPER_DATA`; none for other data, nor for a benchmark of a user's own classes of such data."""
    own = folder.read_suite().get("plan", {}).get("suite") == "own"
    about_paper = results.where(data=PAPER_DATA)
    return [] if own or not about_paper.rows else judge(about_paper)
