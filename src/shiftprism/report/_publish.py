"""A folder of results made readable: tables, figures, claims and the page."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from shiftprism import claims, plots
from shiftprism._checks import wrong
from shiftprism._files import write_text
from shiftprism.benchmark import Results, Row
from shiftprism.report._figures import Drawing, drawings
from shiftprism.report._page import Section, figure, findings, folded, page, table
from shiftprism.report._paper_tables import paper_tables
from shiftprism.report._table import Cell, Table, names, to_csv, to_latex, to_markdown

FORMATS = {"md": (to_markdown, "md"), "latex": (to_latex, "tex"), "csv": (to_csv, "csv")}
"""Format -> how a table is written in it, and how the name of its file ends."""


def publish(folder: str | Path, page: bool = True) -> None:
    """Write tables/, figures/, claims.json and, as a `page`, report.html of a RESULTS folder.

    Figures of single images need the stored outputs of the models; where these are not stored, as in published
    results, the figures already in figures/ stay as they are.
    """
    folder = Path(folder)
    results = read(folder)
    tables = paper_tables(results)
    for kind in FORMATS:
        write_tables(tables, folder / "tables", kind)
    drawn = _drawn(folder, drawings(folder, results))
    for one, drawing in drawn.items():
        write_text(folder / "figures" / f"{one.stem}.svg", plots.alone(drawing))
    found = claims.judge(results)
    claims.write(folder / "claims.json", found)
    if page:
        write_text(folder / "report.html", _html(folder, results, tables, found, drawn))


def html(path: str | Path) -> str:
    """The page of a RESULTS folder, or of a file of rows; nothing is written."""
    path, results = Path(path), read(path)
    folder = path if path.is_dir() else path.parent
    drawn = _drawn(folder, drawings(folder, results))
    return _html(folder, results, paper_tables(results), claims.judge(results), drawn)


def read(path: str | Path) -> Results:
    """Results that are there and not empty; a broken line is named."""
    path = Path(path)
    file = path / "rows.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise wrong("RESULTS", "a folder with rows.jsonl", path, "run `shiftprism benchmark` first")
    results = Results.read(path)
    if not results.rows:
        raise wrong("RESULTS", "a folder with rows", f"{file} without any", "run `shiftprism benchmark` first")
    return results


def write_tables(tables: Mapping[str, Table], folder: Path, kind: str) -> list[Path]:
    """Each table in one format, in a file called by its stem."""
    write, ending = FORMATS[kind]
    paths = []
    for stem, one in tables.items():
        paths.append(folder / f"{stem}.{ending}")
        write_text(paths[-1], write(one))
    return paths


def source(rows: Sequence[Row], command: str = "") -> str:
    """How many measurements of how many seeds, by which versions, as HTML; few seeds are said to be few."""
    seen: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        if row.metric in ("auroc", "accuracy"):
            seen.setdefault((row.data, row.model), set()).add(row.seed)
    counts = {len(found) for found in seen.values()} or {0}
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    few = " That is few: differences of the size of the deviations say nothing." if min(counts) < 5 else ""
    versions = " · ".join(sorted({row.versions for row in rows}))
    commit = ", ".join(sorted({row.commit for row in rows if row.commit})) or "an installed copy"
    made = f"<p>The command: <code>{escape(command)}</code></p>\n" if command else ""
    return (
        f"{made}<p>{len(rows):,} measurements, {seeds} {'seed' if seeds == '1' else 'seeds'} a model.{few} The "
        "rows are in <code>rows.jsonl</code> beside this page, each with its weights' fingerprint.</p>\n"
        f"<p>{escape(versions)}; commit {escape(commit)}.</p>"
    )


def _drawn(folder: Path, wanted: Sequence[Drawing]) -> dict[Drawing, str]:
    """Each figure as an `<svg>`: drawn where its material is stored, else as it was published, else left out."""
    found = {}
    for one in wanted:
        try:
            found[one] = plots.svg(one.draw(), one.stem)
        except FileNotFoundError:
            file = folder / "figures" / f"{one.stem}.svg"
            if file.is_file():
                found[one] = _stored(file)
    return found


def _stored(file: Path) -> str:
    text = plots.inline(file.read_text(encoding="utf-8"))
    if not (text.startswith("<svg") and text.endswith("</svg>")):
        raise wrong("figures", "SVG files that ShiftPrism wrote", file, "remove this one")
    return text


def _html(
    folder: Path,
    results: Results,
    tables: Mapping[str, Table],
    found: Sequence[claims.Finding],
    drawn: Mapping[Drawing, str],
) -> str:
    def figures(section: str) -> list[str]:
        return [figure(one.title, one.text, drawing) for one, drawing in drawn.items() if one.section == section]

    def chosen(section: str) -> dict[str, Table]:
        return {stem: one for stem, one in tables.items() if _section(stem) == section}

    def foldings(section: str) -> list[str]:
        return [folded(one.title, table(one, heading=False)) for one in chosen(section).values()]

    answers = {
        "What holds?": [_CLAIMS, findings(found)],
        "Does it detect?": [*map(table, chosen("detect").values()), *figures("detect"), *foldings("long")],
        "Which shift is it?": [*figures("shift"), *foldings("shift")],
        "Can I trust the confidence?": [*map(table, chosen("trust").values()), *figures("trust")],
        "What did the paper say?": [_beside(tables), *figures("paper")],
        "How was this made?": [source(results.rows, _command(folder))],
    }
    sections = [Section(title, "\n".join(parts)) for title, parts in answers.items() if any(parts)]
    data = " and ".join(dict.fromkeys(row.data for row in results.rows))
    models = len({row.model for row in results.rows if row.metric in ("auroc", "accuracy")})
    lead = (
        f"{models} kinds of classifiers of <b>{escape(data)}</b> meet images of another style (<b>covariate "
        "shift</b>), of classes they never saw (<b>concept shift</b>), and of both. First comes what that says about "
        "the paper's claims."
    )
    return page(f"ShiftPrism on {data}", lead, sections)


_CLAIMS = (
    "<p>Each statement of the paper, judged on these rows. A claim holds when the 95 % interval of its effect, over "
    "seeds and images, says so; otherwise it does not hold, be it contradicted or only not shown. Open one for its "
    "evidence.</p>"
)


def _section(stem: str) -> str:
    if "-ladder-" in stem:
        return "shift"
    if "-ranking" in stem or stem.endswith("-scores"):
        return "long"  # every score of every model: opened by few
    return "trust" if stem.endswith("-calibration") else "detect"


def _command(folder: Path) -> str:
    file = folder / "suite.json"
    asked = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return " && ".join([*asked.get("earlier", []), asked.get("command", "")])


def _beside(tables: Mapping[str, Table]) -> str:
    """Ours and the paper's number in one line, for every cell that has both; ladders have their own tables."""
    body = []
    for stem, one in tables.items():
        for line in one.body if _section(stem) in ("detect", "trust") else ():
            row = " · ".join(cell.text for cell in line[: one.labels])
            for column, cell in zip(one.head[one.labels :], line[one.labels :], strict=True):
                ours, theirs = _first(cell.text), _first(cell.paper)
                if ours is not None and theirs is not None:
                    gap = ours - theirs
                    numbers = [Cell(cell.text, mean=ours), Cell(cell.paper, mean=theirs), Cell(f"{gap:+.3g}", mean=gap)]
                    body.append([*names(one.title, row, column), *numbers])
    if not body:
        return "<p>None of the combinations measured here has a number in the paper.</p>"
    note = (
        "Every number of the paper's that has one of ours, in the paper's units; * and † are the paper's marks for "
        "numbers it took from others. Its network is a WRN-28-10 trained for 200 epochs: a smaller one will not reach "
        "it. What can be compared is the order, and that is what the claims test."
    )
    head = ["table", "row", "column", "ours", "the paper's", "ours − the paper's"]
    return table(Table("Ours beside the paper's", note, head, body, 3))


def _first(text: str) -> float | None:
    found = re.search(r"[-−]?\d+(\.\d+)?", text)
    return float(found[0].replace("−", "-")) if found else None
