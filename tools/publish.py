"""What grids measured, made small enough to be committed: python tools/publish.py GRID...

Each GRID is a folder that `shiftprism benchmark` wrote. All their rows go into results/rows.jsonl in brief lines;
everything else is made from that file, so that whoever has it gets the same tables and verdicts. Only figures of single
images are not: they are drawn from the outputs stored in the grids. At last the blocks `<!-- made from results: NAME
-->` of the texts are made anew. Without a GRID all but rows and figures is.
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shiftprism import claims, report
from shiftprism._files import write_text
from shiftprism.benchmark import Results

RESULTS = Path(__file__).parents[1] / "results"
TEXTS = (RESULTS.parent / "README.md", RESULTS / "README.md", RESULTS / "peers.md")
BLOCK = re.compile(r"(<!-- made from results: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Parts = dict[str, Callable[[], str]]


def parts() -> Parts:
    """What a text may show, by name."""
    results = Results.read(RESULTS)
    tables = report.short_tables(results) | report.paper_tables(results)
    made: Parts = {name: partial(report.to_markdown, one) for name, one in tables.items()}
    for data in dict.fromkeys(row.data for row in results.rows):
        made[f"{data}-standing"] = partial(report.standing, results, data)
        made[f"{data}-standing-short"] = partial(_first, results, data)
    found = claims.judge(results.where(protocol=("held-out", "")))  # of a given network few can be judged
    made["verdicts"] = partial(report.verdicts, found)
    made["claims"] = partial(claims.as_markdown, found)
    made["peers"] = lambda: peers((RESULTS / "peers.md").read_text(encoding="utf-8"))
    return made


def _first(results: Results, data: str) -> str:
    """The standing over all sets and over the corruptions, without that in each set."""
    return "".join(report.standing(results, data).splitlines(keepends=True)[:2])


def renewed(text: str, made: Parts) -> str:
    """The text with every block between `<!-- made from results: NAME -->` and `<!-- end -->` made anew."""
    return BLOCK.sub(lambda found: found[1] + "\n" + made[found[2]]() + "\n" + found[3], text)


def peers(text: str) -> str:
    """The short table of the raw output in peers.md: what takes how many times as long as the fastest."""
    head = "| | ShiftPrism | pytorch-ood 0.4.0 | torch-uncertainty 0.13.0 | probmetrics 1.3.0 |"
    lines = [head, "|---|--:|--:|--:|--:|"]
    brought = [re.search(rf"^{re.escape(name)}.*? and (\d+) more", text, re.MULTILINE) for name in _INSTALLED]
    counts = [found[1] if found else "" for found in brought]
    lines.append(f"| packages that pip brings beside torch and its own | {' | '.join(counts)} |")
    for title, label in _SCORES.items():
        found = re.search(rf"^{re.escape(title)} +([\d.]+) s +([\d.]+) s", text, re.MULTILINE)
        assert found is not None, title
        lines.append(_relative(label, [float(found[1]), float(found[2]), None, None]))
    for size in ("10000 x 10", "10000 x 100"):
        part = text.partition(f"=== {size}\n")[2].partition("===")[0]
        for kind, (ours, theirs, others) in _CALIBRATORS.items():
            block = part.partition(f"\n{kind}\n" if kind != "temperature" else "temperature\n")[2]
            times = [
                re.search(rf"^  {re.escape(name)} +([\d.]+) ", block, re.MULTILINE) for name in (ours, theirs, others)
            ]
            assert times[0] is not None
            own, second, third = (float(found[1]) if found else None for found in times)
            label = f"{kind}{_NAMED[kind]}, {size.replace('10000', '10,000').replace('x', '×')}"
            lines.append(_relative(label, [own, None, second, third]))
    return "\n".join(lines) + "\n"


_INSTALLED = (".:", "pytorch-ood==0.4.0:", "torch-uncertainty[cpu]==0.13.0:", "probmetrics==1.3.0:")
_SCORES = {
    "Mahalanobis fit, 10k x 512, K 100": "Mahalanobis fit, 10,000 × 512, 100 classes",
    "Mahalanobis score, 10k x 512, K 100": "Mahalanobis score, the same",
    "GMM fit, 10k x 512, K 100": "GMM fit, the same",
    "KNN score, bank 50k, 2k queries, k 50, D 512": "KNN score, 2,000 against 50,000",
}
_CALIBRATORS = {
    "temperature": ("shiftprism", "torch-uncertainty", "probmetrics"),
    "vector": ("shiftprism", "torch-uncertainty", "probmetrics SVS"),
    "matrix": ("shiftprism, path", "torch-uncertainty", "probmetrics SMS"),
}
_NAMED = {"temperature": "", "vector": " (probmetrics: SVS)", "matrix": " (ours with its strength searched; SMS)"}


def _relative(label: str, seconds: list[float | None]) -> str:
    """A line of the table; the fastest is 1."""
    best = min(one for one in seconds if one is not None)
    cells = ["" if one is None else "**1**" if one == best else f"{one / best:.2g}" for one in seconds]
    return f"| {label} | {' | '.join(cells)} |"


def merged(grids: list[Path]) -> Results:
    """The rows of all grids; an error where two have the same cell, or were made with other settings."""
    plans = [_asked(grid)["plan"] for grid in grids]
    same = ("suite", "preset", "settings", "images", "corrupted_images", "corruptions", "scores", "calibrators")
    for name in same:
        if len({json.dumps(plan.get(name, 0)) for plan in plans if name != "settings" or plan["models"]}) > 1:
            raise SystemExit(f"the grids have different {name}")
    found, seen = [], dict[tuple[str, str, int, str], Path]()
    for grid in grids:
        results = Results.read(grid)
        keys = [(row.data, row.model, row.seed, row.protocol) for row in results.rows]
        if twice := next((key for key in keys if key in seen and key[1] != "pixels"), None):
            raise SystemExit(f"{twice} is in {seen[twice]} and in {grid}")
        new = [number for number, key in enumerate(keys) if key not in seen]  # pixels are the same in every grid
        found.append(Results([results.rows[number] for number in new], results.resamples[new]))
        seen |= dict.fromkeys(keys, grid)
    return Results.concat(found)


def _asked(grid: Path) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads((grid / "suite.json").read_text(encoding="utf-8"))
    return asked


def commands(grid: Path) -> list[str]:
    """What filled a grid, without the folders of one machine, and the settings that a file gave."""
    asked = _asked(grid)
    settings = asked["plan"]["settings"]
    told = f"   # in the config: {settings}" if settings else ""
    path = re.compile(r"(--(?:root|out|runs|config) (?:[\w-]+=)?)(\S+)")
    return [
        path.sub(lambda m: m[1] + Path(m[2]).name, one) + told for one in (*asked.get("earlier", []), asked["command"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", nargs="*", type=Path, metavar="GRID", help="none: make everything else anew")
    grids = parser.parse_args().grids
    if grids:
        merged(grids).write_brief(RESULTS)
        write_text(RESULTS / "commands.txt", "".join(f"{one}\n" for grid in grids for one in commands(grid)))
        shutil.rmtree(RESULTS / "figures", ignore_errors=True)
        for figure in (figure for grid in reversed(grids) for figure in sorted((grid / "figures").glob("*.svg"))):
            write_text(RESULTS / "figures" / figure.name, figure.read_text(encoding="utf-8"))  # the first grid's stay
    shutil.rmtree(RESULTS / "tables", ignore_errors=True)
    report.publish(RESULTS, page=False)
    made = parts()
    for path in TEXTS:
        write_text(path, renewed(path.read_text(encoding="utf-8"), made))
    size = sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file())
    print(f"{RESULTS.name}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
