"""Findings as text: claims.json, and tables in Markdown."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftprism._errors import choice, wrong
from shiftprism._files import check_file, write_text
from shiftprism.claims._claim import JUDGEMENTS, Estimate, Finding, Judgement
from shiftprism.claims._list import CLAIMS

SIGNS: dict[Judgement, str] = {"holds": "✓", "contradicted": "✗", "not shown": "○", "not measured": "·"}


def to_json(findings: Sequence[Finding]) -> str:
    """A list of objects, each with everything a reader needs."""
    return json.dumps([_to_object(finding) for finding in findings], indent=1, ensure_ascii=False) + "\n"


def write_findings(path: str | Path, findings: Sequence[Finding]) -> None:
    """Write claims.json, whole or not at all."""
    write_text(Path(path), to_json(findings))


def read_findings(path: str | Path) -> list[Finding]:
    """The findings that `write_findings` wrote; a claim that this version does not know is an error."""
    try:
        return [_from_object(one) for one in json.loads(check_file(Path(path)).read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        got = f"{path} ({type(error).__name__}: {error})"
        raise wrong("path", "a file of findings", got, "write it again with `shiftprism report`") from error


def _to_object(finding: Finding) -> dict[str, Any]:
    claim = {"claim": finding.claim.name, "sentence": finding.claim.sentence, "place": finding.claim.place}
    evidence = [estimate._asdict() for estimate in finding.evidence]
    result = {"data": finding.data, "judgement": finding.judgement, "note": finding.note, "evidence": evidence}
    return claim | result


def _from_object(stored: dict[str, Any]) -> Finding:
    claim = {claim.name: claim for claim in CLAIMS}[stored["claim"]]
    choice("judgement", stored["judgement"], JUDGEMENTS)
    evidence = [Estimate(**estimate) for estimate in stored["evidence"]]
    return Finding(claim, stored["judgement"], evidence, stored["note"], stored["data"])


def to_markdown(findings: Sequence[Finding]) -> str:
    """A table for each ID data set."""
    lines = []
    for data in dict.fromkeys(finding.data for finding in findings):
        own = [finding for finding in findings if finding.data == data]
        lines += [f"### {data}", "", count_judgements(own), ""]
        lines += ["| judgement | claim | evidence | note |", "| :-- | :-- | :-- | :-- |"]
        for finding in own:
            evidence = "; ".join(f"{one.name}: {one.text}" for one in finding.deciding)
            sentence = f"{finding.claim.sentence} ({finding.claim.place})"
            cells = (f"{SIGNS[finding.judgement]} {finding.judgement}", sentence, evidence, finding.note)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def count_judgements(findings: Sequence[Finding]) -> str:
    """How many claims have each judgement, in a line.

    >>> count_judgements([])
    '0 hold, 0 contradicted, 0 not shown, 0 not measured'
    """
    counts = Counter(finding.judgement for finding in findings)
    return ", ".join(f"{counts[name]} {'hold' if name == 'holds' else name}" for name in JUDGEMENTS)
