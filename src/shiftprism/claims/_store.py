"""Findings as text: claims.json, and tables in Markdown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftprism._checks import wrong
from shiftprism._files import write_text
from shiftprism.claims._claim import Estimate, Finding, Verdict
from shiftprism.claims._list import CLAIMS


def as_json(findings: Sequence[Finding]) -> str:
    """A list of objects, each with everything a reader needs."""
    return json.dumps([_told(one) for one in findings], indent=1, ensure_ascii=False) + "\n"


def write(path: str | Path, findings: Sequence[Finding]) -> None:
    """Whole or not at all."""
    write_text(Path(path), as_json(findings))


def read(path: str | Path) -> list[Finding]:
    """The findings of a file that `write` made; a claim this version does not know is an error."""
    try:
        return [_found(one) for one in json.loads(Path(path).read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError) as error:
        got = f"{path} ({type(error).__name__}: {error})"
        raise wrong("path", "a file of findings", got, "make it anew from the rows with `shiftprism report`") from error


def _told(one: Finding) -> dict[str, Any]:
    evidence = [estimate._asdict() for estimate in one.evidence]
    about = {"claim": one.claim.name, "sentence": one.claim.sentence, "place": one.claim.place}
    return about | {"data": one.data, "verdict": one.verdict, "note": one.note, "evidence": evidence}


def _found(one: dict[str, Any]) -> Finding:
    claim = {claim.name: claim for claim in CLAIMS}[one["claim"]]
    evidence = [Estimate(**estimate) for estimate in one["evidence"]]
    return Finding(claim, one["verdict"], evidence, one["note"], one["data"])


SIGNS: dict[Verdict, str] = {"holds": "✓ holds", "does not hold": "✗ does not hold", "not measured": "· not measured"}


def as_markdown(found: Sequence[Finding]) -> str:
    """A table for each ID data set."""
    lines = []
    for data in dict.fromkeys(one.data for one in found):
        own = [one for one in found if one.data == data]
        lines += [
            f"### {data}",
            "",
            counted(own),
            "",
            "| verdict | claim | evidence | note |",
            "| :-- | :-- | :-- | :-- |",
        ]
        for one in own:
            told = "; ".join(f"{line.name}: {line.text}" for line in one.short)
            cells = (SIGNS[one.verdict], f"{one.claim.sentence} ({one.claim.place})", told, one.note)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def counted(own: Sequence[Finding]) -> str:
    """How many claims have each verdict."""
    return " · ".join(f"{verdict}: {sum(one.verdict == verdict for one in own)}" for verdict in SIGNS)
