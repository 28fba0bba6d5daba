"""Rows and evidence in, tables and one self-contained HTML page out."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from shiftprism import __version__, plots
from shiftprism._files import write_text
from shiftprism.benchmark import Evidence, Row, Summary, summarise


class Table(NamedTuple):
    """A table as text: the first columns name the row, the others hold numbers."""

    title: str
    note: str
    head: list[str]
    body: list[list[str]]
    labels: int
    """How many of the first columns are names."""


def detection_table(rows: Sequence[Row]) -> Table:
    """AUROC of every model and score on every shift, all severities of a shift pooled; best of a model marked *."""
    found = summarise(row for row in rows if row.metric == "auroc")
    shifts = list(dict.fromkeys((row.shift, row.kind) for row in rows if row.kind != "none"))
    pairs = list(dict.fromkeys((row.model, row.subject) for row in rows if row.metric == "auroc"))
    body = []
    for model, score in pairs:
        cells = []
        for shift, _ in shifts:
            best = max(found[other, shift, 0, each, "auroc"].mean for other, each in pairs if other == model)
            one = found[model, shift, 0, score, "auroc"]
            cells.append(_percent(one) + (" *" if one.mean == best else ""))
        body.append([model, score, *cells])
    head = ["model", "score", *(f"{_words(shift)} ({kind})" for shift, kind in shifts)]
    note = "AUROC in %, in-distribution positive, mean ± standard deviation over seeds; * is the best mean of a model."
    return Table("Does it detect?", note, head, body, 2)


def calibration_table(rows: Sequence[Row]) -> Table:
    """Accuracy, ECE and NLL before and after calibration, on clean data and averaged over the covariate shifts."""
    kept = [row for row in rows if row.metric in ("accuracy", "ece", "nll")]
    body = []
    for model in dict.fromkeys(row.model for row in kept):
        for kind, images in (("none", "clean"), ("covariate", "corrupted")):
            for subject in dict.fromkeys(row.subject for row in kept):
                own = [row for row in kept if (row.model, row.kind, row.subject) == (model, kind, subject)]
                accuracy, ece, nll = (
                    _averaged([row for row in own if row.metric == m]) for m in ("accuracy", "ece", "nll")
                )
                name = "uncalibrated" if subject == "none" else subject
                body.append([model, images, name, _percent(accuracy), _percent(ece), f"{nll.mean:.3f} ± {nll.std:.3f}"])
    head = ["model", "images", "calibrator", "accuracy, %", "ECE, %", "NLL"]
    note = (
        "Mean ± standard deviation over seeds; lower ECE and NLL are better. Calibrators were fitted on held-out clean "
        "data. Corrupted: the mean over all corruptions and severities."
    )
    return Table("Can the confidence be trusted?", note, head, body, 3)


def in_short(rows: Sequence[Row]) -> list[str]:
    """A sentence for each shift: the best score of each model, said to be no clear winner where the spread says so."""
    found = summarise(row for row in rows if row.metric == "auroc")
    sentences = []
    for shift, kind in dict.fromkeys((row.shift, row.kind) for row in rows if row.kind != "none"):
        parts = []
        for model in dict.fromkeys(row.model for row in rows):
            own = {key[3]: one for key, one in found.items() if key[:3] == (model, shift, 0)}
            best = max(own, key=lambda score: own[score].mean)
            rivals = [score for score in own if own[score].mean >= own[best].mean - own[best].std and score != best]
            also = f", within one deviation of {', '.join(rivals)}" if rivals else ""
            parts.append(f"{model} detects it best with {best} ({_percent(own[best])} %{also})")
        sentences.append(f"{_words(shift)} ({kind} shift): {'; '.join(parts)}.")
    return sentences


def write_page(path: str | Path, title: str, lead: str, rows: Sequence[Row], evidence: Sequence[Evidence]) -> None:
    """One HTML file with tables and figures inline: no network, no scripts, light and dark, readable on a phone."""
    shown = [one for one in evidence if one.seed == evidence[0].seed]
    seed = f"One model of each kind, seed {evidence[0].seed}."
    short = "".join(f"<li>{escape(sentence)}</li>" for sentence in in_short(rows))
    sections = [
        _section("In short", f"<ul>{short}</ul>"),
        _table(detection_table(rows)),
        _figure(
            "How does it grow with severity?",
            "A good score rises with the severity of a corruption. Below the dotted line a score takes shifted images "
            "for <em>more</em> in-distribution than clean ones: the shift raised it. Bands are one standard deviation "
            "over seeds.",
            plots.svg(plots.severity_curves(rows), "severity"),
        ),
        _figure(
            "Which shift is it?",
            "Each dot is an image, placed by its rank among the clean images; large marks are medians, with the middle "
            "half of the images along the bars. Style shift should move images left (small g), an unseen concept down "
            f"(small h). {seed} Corruptions at their severest.",
            plots.svg(plots.shift_plane(shown), "plane"),
        ),
        _figure(
            "How are the scores spread?",
            f"Higher is more in-distribution, for every score. {seed}",
            plots.svg(plots.score_histograms(shown), "histograms"),
        ),
        _table(calibration_table(rows)),
        _figure(
            "Is a confidence of 80 % right 80 % of the time?",
            "On the dotted line it is; below it the model is over-confident. Bars are 95 % intervals; the steps at the "
            f"foot count the images. {seed}",
            plots.svg(plots.reliability_diagrams(shown), "reliability"),
        ),
        _section("How was this made?", _source(rows)),
    ]
    page = _PAGE.format(title=escape(title), lead=lead, style=_STYLE, body="\n".join(sections))
    write_text(Path(path), page)


def _averaged(rows: Sequence[Row]) -> Summary:
    """Over conditions first, then mean and spread over seeds."""
    seeds = dict.fromkeys(row.seed for row in rows)
    return Summary.of([fmean(row.value for row in rows if row.seed == seed) for seed in seeds])


def _percent(one: Summary) -> str:
    return f"{100 * one.mean:.1f} ± {100 * one.std:.1f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{inner}\n</section>"


def _figure(title: str, text: str, drawing: str) -> str:
    return _section(title, f'<p>{text}</p>\n<figure role="img" aria-label="{escape(title)}">{drawing}</figure>')


def _table(table: Table) -> str:
    kinds = ["name"] * table.labels + ["number"] * (len(table.head) - table.labels)
    pairs = zip(kinds, table.head, strict=True)
    head = "".join(f'<th scope="col" class="{kind}">{escape(cell)}</th>' for kind, cell in pairs)
    lines = []
    for number, cells in enumerate(table.body):
        names = "".join(f'<th scope="row">{escape(cell)}</th>' for cell in cells[: table.labels])
        values = "".join(
            f'<td class="best">{escape(cell[:-2])}</td>' if cell.endswith(" *") else f"<td>{escape(cell)}</td>"
            for cell in cells[table.labels :]
        )
        first = number and cells[0] != table.body[number - 1][0]
        lines.append(f'<tr class="group">{names}{values}</tr>' if first else f"<tr>{names}{values}</tr>")
    note = table.note.replace("*", "bold")
    inner = f'<p>{escape(note)}</p>\n<div class="wide" tabindex="0" role="region" aria-label="{escape(table.title)}">'
    inner += f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    return _section(table.title, inner)


def _source(rows: Sequence[Row]) -> str:
    seeds = len({row.seed for row in rows})
    versions = " · ".join(sorted({row.versions for row in rows}))
    commit = ", ".join(sorted({row.commit for row in rows if row.commit})) or "an installed copy"
    few = " That is few: differences of the size of the deviations say nothing." if seeds < 5 else ""
    return (
        f"<p>{len(rows)} measurements, {seeds} seeds a model.{few} The rows are in <code>rows.jsonl</code> beside this "
        f"page, each with its weights' fingerprint.</p>\n<p>{escape(versions)}; commit {escape(commit)}.</p>"
    )


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2126; --paper: #fff; --soft: #5d6771; --line: #d8dde2; --lit: #eef5fb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --paper: #14181c; --soft: #9aa5b0; --line: #343c44; --lit: #1d2a36; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; margin: 0.4rem 0 0.9rem; }
li { max-width: 46rem; margin: 0.25rem 0; } ul { padding-left: 1.2rem; }
.lead { font-size: 1.1rem; } .lead, section > p { color: var(--soft); } .lead b { color: var(--ink); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.28rem 0.8rem; text-align: right; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; white-space: normal; min-width: 5.5rem; }
th[scope="row"] { text-align: left; font-weight: 400; } th.name { text-align: left; }
tr.group > * { border-top: 1px solid var(--line); } tbody tr:hover { background: var(--lit); }
td.best { font-weight: 700; }
figure { margin: 0; overflow-x: auto; } figure svg { width: 100%; min-width: 30rem; height: auto; display: block; }
code { font-size: 0.92em; }
"""

_PAGE = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
    '<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n'
    '<p class="lead">{lead}</p>\n</header>\n<main>\n{body}\n</main>\n'
    f"<footer><p>Made by ShiftPrism {__version__}.</p></footer>\n</body>\n</html>\n"
)
