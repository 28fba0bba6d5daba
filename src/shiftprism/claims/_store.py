"""Findings as a file: claims.json."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shiftprism._checks import wrong
from shiftprism._files import write_text
from shiftprism.claims._claim import Estimate, Finding
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
