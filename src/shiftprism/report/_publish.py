"""A folder of results made readable: tables, figures, claims and the page."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from shiftprism import claims, plots
from shiftprism._errors import wrong
from shiftprism._files import write_text
from shiftprism.claims import Finding
from shiftprism.report import _page as html
from shiftprism.report._figures import Drawing, list_drawings
from shiftprism.report._table import Cell, Section, Table, label_cells, to_csv, to_latex, to_markdown
from shiftprism.report._tables import make_tables
from shiftprism.rows import Results, ResultsFolder, Row

FORMATS = {"md": (to_markdown, "md"), "latex": (to_latex, "tex"), "csv": (to_csv, "csv")}
"""Format -> how a table is written in it, and the ending of its file."""


class _Content(NamedTuple):
    """Everything a page shows of a folder of results."""

    folder: ResultsFolder
    results: Results
    tables: Mapping[str, Table]
    findings: Sequence[Finding]
    figures: Mapping[Drawing, str]
    """Each figure as an `<svg>`."""


def publish(folder: str | Path, results: Results | None = None, *, page: bool = True, lead: str = "") -> list[Finding]:
    """Write tables/, figures/, claims.json and, as a `page`, report.html of a RESULTS folder; return the findings.

    The paper's claims are judged on the paper's data; there are no findings, and no such section, for other data.
    `results` are the folder's own where they are in memory already. `lead` is HTML, the first sentences of the page.
    Figures of single images need the stored outputs of the models. Where these are not stored, as in published results,
    the figures already in figures/ stay as they are.
    """
    content = _gather_content(folder, results)
    for kind in FORMATS:
        write_tables(content.tables, content.folder.tables, kind)
    for drawing, svg in content.figures.items():
        write_text(content.folder.figure(drawing.stem), plots.alone(svg))
    claims.write_findings(content.folder.claims, content.findings)
    if page:
        write_text(content.folder.page, _make_page(content, lead))
    return list(content.findings)


def make_page(path: str | Path) -> str:
    """The HTML page of a RESULTS folder, or of a file of rows; nothing is written."""
    return _make_page(_gather_content(path))


def read_results(path: str | Path) -> Results:
    """The results of a folder or file; none are an error."""
    results = Results.read(path)
    if not results.rows:
        raise wrong("RESULTS", "a folder with rows", f"{path} without any", "run `shiftprism benchmark` first")
    return results


def write_tables(tables: Mapping[str, Table], folder: Path, kind: str) -> list[Path]:
    """Write each table in one format, to a file with the table's name."""
    write, ending = FORMATS[kind]
    paths = []
    for stem, table in tables.items():
        paths.append(folder / f"{stem}.{ending}")
        write_text(paths[-1], write(table))
    return paths


def _gather_content(path: str | Path, results: Results | None = None) -> _Content:
    results = results or read_results(path)
    folder = ResultsFolder.of(path)
    figures = _draw_figures(folder, list_drawings(folder, results))
    findings = claims.judge_paper_data(results, folder)
    return _Content(folder, results, make_tables(results), findings, figures)


def _draw_figures(folder: ResultsFolder, drawings: Sequence[Drawing]) -> dict[Drawing, str]:
    """Each figure as an `<svg>`: drawn where its data are stored, else as it was published, else left out."""
    figures = {}
    for drawing in drawings:
        try:
            figures[drawing] = plots.svg(drawing.draw(), drawing.stem)
        except FileNotFoundError:
            file = folder.figure(drawing.stem)
            if file.is_file():
                figures[drawing] = _read_figure(file)
    return figures


def _read_figure(file: Path) -> str:
    # a byte that is not UTF-8 becomes a sign, which a figure of ours may not contain
    text = plots.inline(file.read_text(encoding="utf-8", errors="replace"))
    if not (text.startswith("<svg") and text.endswith("</svg>")) or "\ufffd" in text:
        raise wrong("figures", "SVG files that ShiftPrism wrote", file, "remove this one")
    return text


def _make_page(content: _Content, lead: str = "") -> str:
    def figures(section: Section) -> list[str]:
        return [html.figure(one.title, one.text, svg) for one, svg in content.figures.items() if one.section == section]

    def tables(section: Section) -> list[Table]:
        return [table for table in content.tables.values() if table.section == section]

    def foldings(section: Section) -> list[str]:
        return [html.fold(table.title, html.table(table, heading=False)) for table in tables(section)]

    # the paper says nothing about a reader's own data
    claimed = [_CLAIMS, html.list_findings(content.findings)] if content.findings else []
    compared = [_compare_with_paper(content.tables.values())] if content.findings else []
    answers = {
        "What holds?": claimed,
        "Does it detect?": [*map(html.table, tables("detect")), *figures("detect"), *foldings("all scores")],
        "Which shift is it?": [*figures("shift"), *foldings("shift")],
        "Can I trust the confidence?": [*map(html.table, tables("trust")), *figures("trust")],
        "What did the paper say?": [*compared, *figures("paper")],
        "How was this made?": [_describe_source(content.results.rows, " && ".join(content.folder.commands()))],
    }
    sections = [html.Section(title, "\n".join(parts)) for title, parts in answers.items() if any(parts)]
    rows = content.results.rows
    data = " and ".join(dict.fromkeys(row.data for row in rows))
    models = len({row.model for row in rows if row.metric in ("auroc", "accuracy")})
    lead = lead or (
        f"{models} kinds of classifiers of <b>{escape(data)}</b> meet images of another style (<b>covariate "
        "shift</b>), of classes they never saw (<b>concept shift</b>), and of both."
        + (" First comes what that says about the paper's claims." if content.findings else "")
    )
    return html.page(f"ShiftPrism on {data}", lead, sections)


_CLAIMS = (
    "<p>Each statement of the paper, judged on these rows by the 95 % interval of its effect over seeds and images. It "
    "<b>holds</b>, is <b>contradicted</b>, is <b>not shown</b> where the interval includes both, or was <b>not "
    "measured</b>. Open one for its evidence.</p>"
)


def _describe_source(rows: Sequence[Row], command: str = "") -> str:
    """How many measurements of how many seeds, by which versions, as HTML; few seeds are called few."""
    seeds_of: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        if row.metric in ("auroc", "accuracy"):
            seeds_of.setdefault((row.data, row.model), set()).add(row.seed)
    counts = {len(seeds) for seeds in seeds_of.values()} or {0}
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


def _compare_with_paper(tables: Iterable[Table]) -> str:
    """Ours and the paper's number in one line, for every cell that has both; ladders have their own tables."""
    body = []
    for table in tables:
        for line in table.body if table.section in ("detect", "trust") else ():
            row = " · ".join(cell.text for cell in line[: table.labels])
            for column, cell in zip(table.head[table.labels :], line[table.labels :], strict=True):
                if not math.isnan(cell.mean) and not math.isnan(cell.paper_mean):
                    ours, theirs = cell.scale * cell.mean, cell.scale * cell.paper_mean
                    gap = ours - theirs
                    numbers = [Cell(cell.text, mean=ours), Cell(cell.paper, mean=theirs), Cell(f"{gap:+.3g}", mean=gap)]
                    body.append([*label_cells(table.title, row, column), *numbers])
    if not body:
        return "<p>None of the combinations measured here has a number in the paper.</p>"
    note = (
        "Every number of the paper's that has one of ours, in the paper's units; * and † are the paper's marks for "
        "numbers it took from others. Its network is a WRN-28-10 trained for 200 epochs: a smaller one will not reach "
        "it. What can be compared is the order, and that is what the claims test."
    )
    head = ["table", "row", "column", "ours", "the paper's", "ours − the paper's"]
    return html.table(Table("Ours beside the paper's", note, head, body, 3))
