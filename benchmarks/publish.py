"""What grids measured, made small enough to be committed: python benchmarks/publish.py GRID... --to results

Each GRID is a folder that `shiftprism benchmark` wrote. All their rows go into one file of brief lines, without
resamples; everything else is made from that file, so that whoever has it gets the same tables and verdicts. Figures of
single images cannot be: they are drawn from the outputs stored in the grids. At last the parts of README.md and
results/README.md that are made from rows are made anew.
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from shiftprism import claims, report
from shiftprism._files import write_text
from shiftprism.benchmark import Results

BLOCK = re.compile(r"(<!-- made from results: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
TEXTS = ("README.md", "results/README.md")


def parts(folder: Path) -> dict[str, Callable[[], str]]:
    """What a text may show, by name."""
    results = Results.read(folder)
    tables = report.short_tables(results) | report.paper_tables(results)
    made: dict[str, Callable[[], str]] = {name: partial(report.to_markdown, one) for name, one in tables.items()}
    for data in dict.fromkeys(row.data for row in results.rows):
        made[f"{data}-standing"] = partial(report.standing, results, data)
    made["peers"] = lambda: _short((folder / "peers.md").read_text(encoding="utf-8"))
    made["verdicts"] = lambda: report.verdicts(claims.judge(results))
    made["claims"] = lambda: claims.as_markdown(claims.judge(results))
    return made


def _short(text: str) -> str:
    """What stands between <!-- short --> and <!-- end -->."""
    return text.partition("<!-- short -->\n")[2].partition("<!-- end -->")[0]


def renewed(text: str, made: dict[str, Callable[[], str]]) -> str:
    """The text with every block between `<!-- made from results: NAME -->` and `<!-- end -->` made anew."""
    return BLOCK.sub(lambda found: found[1] + "\n" + made[found[2]]() + "\n" + found[3], text)


def merged(grids: list[Path]) -> Results:
    """The rows of all grids, and an error where two have the same model, data, seed and protocol."""
    found = [Results.read(grid) for grid in grids]
    seen: dict[tuple[str, str, int, str], Path] = {}
    for grid, results in zip(grids, found, strict=True):
        for key in {(row.data, row.model, row.seed, row.protocol) for row in results.rows if row.model != "pixels"}:
            if key in seen:
                raise SystemExit(f"{key} is in {seen[key]} and in {grid}")
            seen[key] = grid
    return Results.concat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", nargs="*", type=Path, metavar="GRID", help="none: make everything else anew")
    parser.add_argument("--to", type=Path, default=Path("results"))
    words = parser.parse_args()
    if words.grids:
        merged(words.grids).write_brief(words.to)
        asked = [json.loads((grid / "suite.json").read_text(encoding="utf-8")) for grid in words.grids]
        lines = [re.sub(r"(--(?:root|out|runs|config) (?:\w+=)?)\S*/", r"\1", one["command"]) for one in asked]
        write_text(words.to / "commands.txt", "\n".join(lines) + "\n")
        shutil.rmtree(words.to / "figures", ignore_errors=True)
        for grid in words.grids:
            for figure in sorted((grid / "figures").glob("*.svg")):
                write_text(words.to / "figures" / figure.name, figure.read_text(encoding="utf-8"))
    shutil.rmtree(words.to / "tables", ignore_errors=True)
    report.publish(words.to, page=False)
    made = parts(words.to)
    for path in map(Path, TEXTS):
        if path.exists():
            write_text(path, renewed(path.read_text(encoding="utf-8"), made))
    size = sum(path.stat().st_size for path in words.to.rglob("*") if path.is_file())
    print(f"{words.to}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
