"""What differs between two results folders: python tools/compare_results.py BEFORE AFTER [--verdicts]

It compares every table, cell by cell (numbers, bold, ranks), and the judgement and evidence of every claim. Words may
differ. The exit code is 1 if a number, a rank or a judgement does. With `--verdicts` it says instead which judgements
changed, with the note of the new one, and how order and significance changed in each ranking: rows may have left.
"""

import argparse
import csv
import json
from collections import Counter
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


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_claims(path: Path) -> list[tuple[Any, ...]]:
    """Claim, data set, judgement and evidence; the two fields of older files become one judgement."""
    claims = []
    for one in _read_json(path):
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


def compare_verdicts(before: Path, after: Path) -> None:
    """Print every judgement that changed, and of each ranking who left, whether the order held, and significance."""
    notes = {(one["data"], one["claim"]): one["note"] for one in _read_json(after / "claims.json")}
    judged = [read_claims(folder / "claims.json") for folder in (before, after)]
    old, new = ({(data, claim): judgement for claim, data, judgement, _ in part} for part in judged)
    for pair in (pair for pair in new if old.get(pair) != new[pair]):
        print(f"{', '.join(pair)}: {old.get(pair, 'absent')} -> {new[pair]} ({notes[pair]})")
    for path in sorted((after / "tables").glob("*-ranking*.csv")):
        order, verdicts = _read_ranking(before / "tables" / path.name)
        order_now, verdicts_now = _read_ranking(path)
        stayed = [pair for pair in order if pair in order_now]
        held = "held" if stayed == [pair for pair in order_now if pair in order] else "changed"
        counts = f"{len(order) - len(stayed)} left, {len(order_now) - len(stayed)} new"
        print(f"{path.stem}: {len(order)} pairs before, {counts}; order {held}")
        flips = Counter((verdicts[pair], verdicts_now[pair]) for pair in verdicts if pair in verdicts_now)
        for (was, now_is), count in flips.most_common():
            print(f"    {was} -> {now_is}: {count}" if was != now_is else f"    {was}: {count}")


def _read_ranking(path: Path) -> tuple[list[tuple[str, str]], dict[tuple[str, str], str]]:
    """The pairs of model and score in their order, and for each what stands in the column about significance."""
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    order = dict.fromkeys((line["model"], line["score"]) for line in lines)
    columns = ("significantly", *_WORDS)
    return list(order), {(line["model"], line["score"]): line["text"] for line in lines if line["column"] in columns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--verdicts", action="store_true", help="judgements and rankings alone")
    words = parser.parse_args()
    if words.verdicts:
        return compare_verdicts(words.before, words.after)
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
