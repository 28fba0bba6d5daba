"""Refresh the tables of the docs that come from registries: `python tools/docs_tables.py`.

A table stands between `<!-- NAME -->` and `<!-- end -->`. With `--check` nothing is written, and a table that differs
from its registry is an error; a test runs that check.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from shiftprism.calibrators import describe_calibrators
from shiftprism.heads import describe_heads
from shiftprism.scores import describe_scores

ROOT = Path(__file__).resolve().parents[1]


def to_markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table of rows of cells, the titles first and names as code."""
    titles, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [titles, ["---"] * len(titles), *([f"`{name}`", *cells] for name, *cells in body)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "docs/scores.md": {"scores": lambda: to_markdown(describe_scores())},
    "docs/calibrators.md": {"calibrators": lambda: to_markdown(describe_calibrators())},
    "docs/heads.md": {"heads": lambda: to_markdown(describe_heads())},
}
"""{page: {marker: function that makes the Markdown}}."""


def refresh(text: str, marker: str, table: str) -> str:
    """The page with this table between its two markers."""
    start, end = f"<!-- {marker} -->", "<!-- end -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no {start} … {end}")
    return f"{before}{start}\n\n{table}\n\n{end}{after}"


def main(check: bool) -> None:
    """Write the pages whose tables differ, or only name them."""
    differing = []
    for page, tables in TABLES.items():
        old = new = (ROOT / page).read_text(encoding="utf-8")
        for marker, function in tables.items():
            new = refresh(new, marker, function())
        if new != old:
            differing.append(page)
            if not check:
                (ROOT / page).write_text(new, encoding="utf-8")
    if check and differing:
        sys.exit(f"{', '.join(differing)} differ from the registries; run: python tools/docs_tables.py")


if __name__ == "__main__":
    main(check="--check" in sys.argv[1:])
