"""What differs between two results folders: python tools/compare_results.py BEFORE AFTER

It compares every table, cell by cell (numbers, bold, ranks), and the judgement and evidence of every claim. Words may
differ. The exit code is 1 if a number, a rank or a judgement does.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

_NUMBERS = ("mean", "std", "seeds", "n", "bold", "paper")
_WORDS = {"beyond noise": "significantly", "ECE, corrupted": "mean ECE, corrupted"}
"""Headings that were renamed."""


def read_table(path: Path) -> list[tuple[str, ...]]:
    """The names and numbers of every cell; texts of numbers are made from them, other texts (ranks) count too."""
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    names = [name for name in lines[0] if name not in (*_NUMBERS, "text")] if lines else []
    rows = []
    for line in lines:
        keys = [_WORDS.get(line[name], line[name]) for name in names]
        rows.append((*keys, *(line[name] for name in _NUMBERS), line["text"]))
    return rows


def read_claims(path: Path) -> list[tuple[Any, ...]]:
    """Claim, data set, judgement and evidence; the two fields of older files become one judgement."""
    claims = []
    for one in json.loads(path.read_text(encoding="utf-8")):
        judgement = one.get("judgement") or one["verdict"]
        if judgement == "does not hold":
            judgement = one["note"].partition(":")[0]
        claims.append((one["claim"], one["data"], judgement, one["evidence"]))
    return claims


def compare(name: str, before: list[Any], after: list[Any]) -> int:
    """Print the differences of one table or of the claims; how many there are."""
    if len(before) != len(after):
        print(f"{name}: {len(before)} entries before, {len(after)} after")
        return 1
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    for a, b in changed[:5]:
        print(f"{name}: {a} -> {b}")
    return len(changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    words = parser.parse_args()
    tables = {folder: {p.name for p in (folder / "tables").glob("*.csv")} for folder in (words.before, words.after)}
    differences = cells = 0
    for name in sorted(tables[words.before] ^ tables[words.after]):
        print(f"{name}: in one folder only")
        differences += 1
    for name in sorted(tables[words.before] & tables[words.after]):
        before, after = (read_table(folder / "tables" / name) for folder in (words.before, words.after))
        cells += len(before)
        differences += compare(name, before, after)
    before, after = (read_claims(folder / "claims.json") for folder in (words.before, words.after))
    differences += compare("claims.json", before, after)
    print(f"{len(tables[words.before])} tables, {cells} cells, {len(before)} claims: {differences} differences")
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
