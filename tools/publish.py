"""Publish measured grids in results/, or elsewhere: python tools/publish.py GRID... [--add | --part NAME | --to FOLDER]

Each GRID is a folder that `shiftprism benchmark` wrote. All their rows go to results/rows.jsonl in brief lines. Tables,
claims and the blocks `<!-- made from results: NAME -->` of the texts are made from that file alone. Figures of single
images are copied from the grids, because they need stored outputs. Without a GRID, rows and figures stay as they are;
all else is made again.

With --add, the published rows stay beside those of the GRIDs. A network that was trained again replaces the published
one of its model and seed, with all rows. A network with the same weights keeps its rows, but for the scores and
calibrators that a GRID measured again. So a machine needs to have only what it measures. Published figures stay. With
--other-machine, the seconds of training in the GRIDs are left out: a faster or slower processor says nothing about a
model.

With --part long, the rows of the GRIDs are added to results/long: networks of longer training, which are compared with
the others and not ranked among them. With --part epochs, the GRIDs hold checkpoints of training runs (`benchmark --runs
NAME=RUN/checkpoints`), and their AUROCs on whole sets are added to results/epochs, for one figure. With --part images,
the GRIDs hold networks whose corruptions were measured on 10,000 images each, and what is compared with the published
rows of 2,000 is added to results/images.

With --to, the same goes to another folder, with a README.md of judgements, tables and open claims and a page for the
browser. Nothing is written by hand: this is for grids of another size, such as the paper's.
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

from averages import average_gains
from lengths import draw_epochs, length_claims, length_gains, length_ranking, take_epochs
from more_images import images_calibration, images_scores, more_images_claims, take_images
from shift_goals import robust_goals, style_goals
from shiftprism import claims, plots, report
from shiftprism._files import write_text
from shiftprism.rows import Results, ResultsFolder, Row
from shiftprism.training import PRESETS, Training, read_run_settings

RESULTS = Path(__file__).parents[1] / "results"
TEXTS = (
    *(RESULTS.parent / name for name in ("README.md", "docs/findings.md", "docs/style.md", "docs/training.md")),
    *(RESULTS / name for name in ("README.md", "standing.md", "short.md", "images.md", "peers.md")),
)
BLOCK = re.compile(r"(<!-- made from results: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Blocks = dict[str, Callable[[], str]]


def make_blocks() -> Blocks:
    """What a text may show, by name."""
    results = Results.read(RESULTS)
    tables = report.short_tables(results) | report.make_tables(results)
    blocks: Blocks = {name: partial(report.to_markdown, table) for name, table in tables.items()}
    blocks["headline"] = partial(make_headline, tables["cifar10-short-detection"])
    for data in dict.fromkeys(row.data for row in results.rows):
        blocks[f"{data}-standing"] = partial(report.standing, results, data)
        blocks[f"{data}-ranks"] = partial(_ranks, results, data)
        blocks[f"{data}-standing-short"] = partial(_short_standing, results, data)
    findings = claims.judge(results.where(protocol=("held-out", "")))  # of a single given network few can be judged
    blocks["judgements"] = partial(report.judgement_counts, findings)
    blocks["claims"] = partial(claims.to_markdown, findings)
    opened = claims.open_claims(results.where(protocol=("held-out", "")))
    blocks["open-claims"] = partial(claims.seeds_to_markdown, opened)
    blocks["cheapest-runs"] = lambda: claims.runs_to_markdown(claims.plan_runs(opened))
    blocks["style-goals"] = partial(style_goals, results)
    blocks["style-goals-cifar100"] = partial(style_goals, results, "cifar100")
    blocks["robust-goals"] = partial(robust_goals, results)
    blocks["average-gains"] = partial(average_gains, results)
    if (RESULTS / "images").exists():
        many = Results.read(RESULTS / "images")
        blocks["images-scores"] = partial(images_scores, results, many)
        blocks["images-calibration"] = partial(images_calibration, results, many)
    blocks["more-images-claims"] = partial(more_images_claims, results.where(protocol=("held-out", "")))
    if (RESULTS / "long").exists():
        both = Results.concat([results, Results.read(RESULTS / "long")])
        blocks["length-gains"] = partial(length_gains, both)
        blocks["length-claims"] = partial(length_claims, both)
        blocks["length-ranking"] = partial(length_ranking, both)
    blocks["peers"] = lambda: peers((RESULTS / "peers.md").read_text(encoding="utf-8"))
    return blocks


def make_headline(table: report.Table) -> str:
    """Six lines of a short table, without its title: baselines, the paper's own, and the best of all."""
    best = next(line for line in table.body if line[-1].text.startswith("1 of "))
    chosen = [line for line in table.body if (line[0].text, line[1].text) in HEADLINE or line is best]
    chosen.sort(key=lambda line: -line[-2].mean)
    note = (
        "AUROC in %, mean ± standard deviation over seeds (none: one seed, which is never bold). Bold as in "
        "[the longer table](results/short.md). The first line is the best of all pairs. `spectrum` is fitted to copies "
        "of held-out images under corruptions other than those tested; the other scores need none."
    )
    return report.to_markdown(table._replace(body=chosen[:6], note=note)).partition("\n\n")[2]


HEADLINE = {*(("vanilla", score) for score in ("spectrum", "energy", "knn")), ("ensemble", "gen"), ("alpha-beta", "u")}


def _short_standing(results: Results, data: str) -> str:
    """The standing over all sets and over the corruptions, without that in each set."""
    return "".join(report.standing(results, data).splitlines(keepends=True)[:2])


def _ranks(results: Results, data: str) -> str:
    """The table of ranks without its title."""
    return report.to_markdown(report.rank_table(results, data)).partition("\n\n")[2]


def renew(text: str, blocks: Blocks) -> str:
    """The text with every block between `<!-- made from results: NAME -->` and `<!-- end -->` made again."""
    return BLOCK.sub(lambda match: match[1] + "\n" + blocks[match[2]]() + "\n" + match[3], text)


def peers(text: str) -> str:
    """The table that speed/peers.py printed into peers.md, with the packages that pip brings in its first line."""
    printed = text.partition("## `speed/peers.py`")[2].partition("```\n")[2].partition("```")[0].strip().split("\n")
    brought = [re.search(rf"^{re.escape(name)}.*? and (\d+) more", text, re.MULTILINE) for name in _INSTALLED]
    counts = [found[1] if found else "" for found in brought] + [""] * (printed[0].count("|") - 2 - len(_INSTALLED))
    packages = f"| packages that pip brings beside torch and its own | {' | '.join(counts)} |"
    return "\n".join([*printed[:2], packages, *printed[2:]]) + "\n"


_INSTALLED = (".:", "pytorch-ood==0.4.0:", "torch-uncertainty[cpu]==0.13.0:", "probmetrics==1.3.0:")


def merge(grids: list[ResultsFolder]) -> Results:
    """The rows of all grids; an error where two have the same cell, or were made with other settings."""
    plans = [grid.read_suite()["plan"] for grid in grids]
    same = ("suite", "preset", "settings", "images", "corrupted_images", "corruptions", "scores", "calibrators")
    for name in same:
        if len({json.dumps(plan.get(name, 0)) for plan in plans if name != "settings" or plan["models"]}) > 1:
            raise SystemExit(f"the grids have different {name}")
    parts, seen = [], dict[tuple[str, str, int, str], Path]()
    for grid in grids:
        results = Results.read(grid.path)
        keys = [_network(row) for row in results.rows]
        if twice := next((key for key in keys if key in seen and key[1] != "pixels"), None):
            raise SystemExit(f"{twice} is in {seen[twice]} and in {grid.path}")
        parts.append(results.take(n for n, key in enumerate(keys) if key not in seen))  # pixels are in every grid
        seen |= dict.fromkeys(keys, grid.path)
    return Results.concat(parts)


def add_to_published(folder: Path, new: Results) -> Results:
    """The published rows and `new`; both must have as many images of each set.

    A network in `new` replaces the published one of its model and seed: whole, or where its weights are the same, the
    rows of the scores and calibrators that were measured again.
    """
    old = Results.read(folder)
    again = {_network(row): row.weights for row in new.rows}
    measured = {(_network(row), row.subject) for row in new.rows}
    kept = old.take(
        n
        for n, row in enumerate(old.rows)
        if again.get(_network(row), row.weights) == row.weights and (_network(row), row.subject) not in measured
    )
    counts = {_image_set(row): row.n for row in kept.rows}
    for row in new.rows:
        if row.n != (published := counts.get(_image_set(row), row.n)):
            where = " ".join(map(str, _image_set(row)))
            raise SystemExit(f"{where}: {row.n} images of {row.model}, but {published} in {folder}; measure alike")
    return Results.concat([kept, new])


def _network(row: Row) -> tuple[str, str, int, str]:
    return row.data, row.model, row.seed, row.protocol


def _image_set(row: Row) -> tuple[str, str, str, int, str]:
    """What rows with the same number of images have in common."""
    return row.data, row.protocol, row.shift, row.severity, row.metric


def training_command(run: Path) -> str:
    """The command that trains a run again, from the preset nearest to its config.toml; empty where that is gone.

    >>> training_command(Path("nowhere"))
    ''
    """
    settings = read_run_settings(run)
    if not settings:
        return ""
    values = {each.name: settings.get(each.name, each.default) for each in fields(Training)}
    changed = {
        name: {key: value for key, value in values.items() if value != getattr(preset, key)}
        for name, preset in PRESETS.items()
    }
    preset = min(changed, key=lambda name: len(changed[name]))
    words = {name: settings[name] for name in ("data", "backbone", "head")} | {"preset": preset} | changed[preset]
    flags = [_write_flag(name.replace("_", "-"), value) for name, value in words.items()]
    return f"shiftprism train {' '.join(flags)} --out {run.name}"


def _write_flag(name: str, value: str | float | bool) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"


def list_commands(grid: ResultsFolder) -> list[str]:
    """The commands that trained its runs and filled a grid, without the folders of one machine.

    Settings of training that a file gave are a comment.
    """
    plan = grid.read_suite()["plan"]
    trained = [training_command(Path(text.partition("=")[2])) for text in plan.get("runs", ())]
    settings = plan["settings"]
    comment = f"   # in the config: {settings}" if settings else ""
    path = re.compile(r"(--(?:root|out|runs|config|data|near|far) (?:[\w@-]+=)?)(\S+)")
    measured = [path.sub(lambda match: match[1] + Path(match[2]).name, text) + comment for text in grid.commands()]
    return [text for text in trained if text] + measured


def write_rows(folder: Path, grids: list[ResultsFolder], add: bool = False, timed: bool = True) -> None:
    """What comes from the grids themselves: rows, commands, and the figures of single images.

    With `add`, beside what is published already; its figures stay, because a grid may have few of the models. Without
    `timed`, the seconds of training are left out.
    """
    rows, commands = merge(grids), [text for grid in grids for text in list_commands(grid)]
    if not timed:
        rows = rows.take(n for n, row in enumerate(rows.rows) if (row.subject, row.metric) != ("training", "seconds"))
    _write(folder, rows, commands, add)
    if add:
        return
    shutil.rmtree(folder / "figures", ignore_errors=True)
    for grid in reversed(grids):  # where two grids have a figure of the same name, the first grid's stays
        for figure in sorted((grid.path / "figures").glob("*.svg")):
            write_text(folder / "figures" / figure.name, figure.read_text(encoding="utf-8"))


def write_part(folder: Path, grids: list[ResultsFolder]) -> None:
    """Add the rows of the grids to those in a folder of their own, of checkpoints what the figure shows."""
    rows, commands = merge(grids), [text for grid in grids for text in list_commands(grid)]
    take = {"epochs": take_epochs, "images": take_images}.get(folder.name)
    rows = take(rows) if take else rows
    _write(folder, rows, commands, add=(folder / "rows.jsonl").exists())


def _write(folder: Path, rows: Results, commands: list[str], add: bool) -> None:
    """Write rows and commands; with `add` beside those in the folder."""
    if add:
        rows = add_to_published(folder, rows)
        commands = (folder / "commands.txt").read_text(encoding="utf-8").splitlines() + commands
    rows.write_brief(folder)
    write_text(folder / "commands.txt", "".join(f"{text}\n" for text in dict.fromkeys(commands)))


def publish_apart(folder: Path, grids: list[ResultsFolder]) -> None:
    """Everything in a folder of its own, README.md included, whatever data, protocol and models the grids have."""
    write_rows(folder, grids)
    shutil.rmtree(folder / "tables", ignore_errors=True)
    findings = report.publish(folder)
    write_text(folder / "README.md", describe_results(Results.read(folder), findings))


def describe_results(results: Results, findings: list[claims.Finding]) -> str:
    """A page in Markdown: the networks, the judgements, the paper's tables, and what open claims would need."""
    rows = [row for row in results.rows if row.model != "pixels"]
    seeds = {(row.data, row.backbone, row.model, row.protocol): set[int]() for row in rows}
    for row in rows:
        seeds[row.data, row.backbone, row.model, row.protocol].add(row.seed)
    lines = [
        "# Results",
        "",
        "Made by `tools/publish.py` from `rows.jsonl` and nothing else; `commands.txt` has the commands.",
        "",
    ]
    lines += ["| ID data | backbone | model | protocol | seeds |", "| :-- | :-- | :-- | :-- | --: |"]
    lines += [f"| {' | '.join(key)} | {len(own)} |" for key, own in seeds.items()]
    if findings:
        opened = claims.open_claims(results.where(data=claims.PAPER_DATA))
        lines += ["", "## Which of the paper's claims hold", "", report.judgement_counts(findings)]
        lines += [claims.to_markdown(findings), "## What open claims would need", "", claims.seeds_to_markdown(opened)]
        lines += [claims.runs_to_markdown(claims.plan_runs(opened))]
    lines += ["", "## Tables", ""]
    shown = ("-detection", "-calibration", "-ranking")
    lines += [report.to_markdown(one) for name, one in report.make_tables(results).items() if name.endswith(shown)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", nargs="*", type=Path, metavar="GRID", help="none: rows and figures stay as they are")
    parser.add_argument("--add", action="store_true", help="keep the published rows of networks that no GRID has")
    parser.add_argument("--other-machine", action="store_true", help="with --add: leave seconds of training out")
    parser.add_argument(
        "--part",
        choices=("long", "epochs", "images"),
        help="add longer runs, checkpoints or more images, apart from the rest",
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="another folder than results/, made from GRIDs alone")
    asked = parser.parse_args()
    grids = [ResultsFolder(path) for path in asked.grids]
    if (asked.add or asked.part) and (asked.to is not None or not grids or (asked.add and asked.part)):
        parser.error("--add or --part needs a GRID, and goes to results/")
    if asked.other_machine and not asked.add:
        parser.error("--other-machine goes with --add")
    if asked.to is not None:
        if not grids or asked.to.resolve() == RESULTS:
            parser.error("--to needs a GRID, and another folder than results/")
        publish_apart(asked.to, grids)
        print(asked.to / "README.md")
        return
    if asked.part:
        write_part(RESULTS / asked.part, grids)
    elif grids:
        write_rows(RESULTS, grids, asked.add, timed=not asked.other_machine)
    shutil.rmtree(RESULTS / "tables", ignore_errors=True)
    report.publish(RESULTS, page=False)
    if (RESULTS / "epochs").exists():
        figure = plots.svg(draw_epochs(Results.read(RESULTS / "epochs")), "cifar10-epochs")
        write_text(RESULTS / "figures" / "cifar10-epochs.svg", plots.alone(figure))
    blocks = make_blocks()
    for path in TEXTS:
        write_text(path, renew(path.read_text(encoding="utf-8"), blocks))
    size = sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file())
    print(f"{RESULTS.name}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
