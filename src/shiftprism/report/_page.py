"""The pieces of the page: sections, tables, figures and claims as HTML, and the one file around them."""

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from shiftprism import __version__
from shiftprism.claims import SIGNS, Finding, count_judgements
from shiftprism.report._table import Cell, Table

_CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_JS = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_CLASSES = {"holds": "holds", "contradicted": "fails", "not shown": "open", "not measured": "open"}
"""The CSS class of each judgement."""


class Section(NamedTuple):
    """A question of the reader, and the HTML that answers it."""

    title: str
    inner: str


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """One HTML file: no network, light and dark, phone to desktop, print; `lead` is HTML, `title` is text.

    Its only script sorts tables. The page forbids itself any other script and any request.
    """
    names = [_anchor(section.title) for section in sections]
    pairs = list(zip(names, sections, strict=True))
    contents = "".join(f'<li><a href="#{name}">{escape(one.title)}</a></li>' for name, one in pairs)
    body = "\n".join(
        f'<section id="{name}"><h2>{escape(one.title)}</h2>\n{one.inner}\n</section>' for name, one in pairs
    )
    digest = base64.b64encode(hashlib.sha256(_JS.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{_CSS}</style>\n</head>\n<body>\n'
        f'<header>\n<h1>{escape(title)}</h1>\n<p class="lead">{lead}</p>\n'
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>\n</header>\n<main>\n{body}\n</main>\n'
        f"<footer><p>Made by ShiftPrism {__version__}.</p></footer>\n<script>{_JS}</script>\n</body>\n</html>\n"
    )


def figure(title: str, text: str, drawing: str, heading: bool = True) -> str:
    """An `<svg>` with its title and a text that says how to read it."""
    above = f"<h3>{escape(title)}</h3>\n" if heading else ""
    caption = f"<p>{escape(text)}</p>\n" if text else ""
    wide = re.search(r'style="max-width:([\d.]+)pt"', drawing)
    # letters shrink to six points, then it scrolls; on a wide page they grow to fourteen
    sizes = f' style="--least:{0.6 * float(wide[1]):.0f}pt;--most:{1.4 * float(wide[1]):.0f}pt"' if wide else ""
    return f'{above}{caption}<figure role="img" aria-label="{escape(title)}"{sizes}>{drawing}</figure>'


def table(one: Table, heading: bool = True) -> str:
    """A table in a region of its own that scrolls, by keyboard too; the paper's numbers under ours."""
    kinds = ["name"] * one.labels + ["number"] * (len(one.head) - one.labels)
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(text)}</th>' for kind, text in zip(kinds, one.head, strict=True)
    )
    lines = []
    for number, cells in enumerate(one.body):
        names = "".join(f'<th scope="row">{escape(cell.text)}</th>' for cell in cells[: one.labels])
        values = "".join(map(_cell, cells[one.labels :]))
        lines.append(f"<tr{' class=group' if one.new_group(number) else ''}>{names}{values}</tr>")
    above = f"<h3>{escape(one.title)}</h3>\n" if heading else ""
    note = one.note.replace("In parentheses: the paper's", "In italics: the paper's")
    return (
        f'{above}<p>{escape(note)}</p>\n<div class="wide" tabindex="0" role="region" '
        f'aria-label="{escape(one.title)}"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def fold(title: str, inner: str) -> str:
    """HTML that opens on a click: long tables that few readers want at once."""
    return f"<details><summary>{escape(title)}</summary>\n{inner}\n</details>"


def list_findings(found: Sequence[Finding]) -> str:
    """Every claim with its judgement, as word and symbol; its evidence opens beneath it.

    Claims that were not measured are folded away, and so are those not shown where no claim is decided.
    """
    parts = []
    for data in dict.fromkeys(one.data for one in found):
        own = [one for one in found if one.data == data]
        parts.append(f'<h3>On {escape(data)}</h3>\n<p class="count">{count_judgements(own)}.</p>')
        decided = any(one.judgement in ("holds", "contradicted") for one in own)
        folded = ("not measured",) if decided else ("not shown", "not measured")
        if decided:
            parts.append(_list([one for one in own if one.judgement not in folded]))
        for judgement in folded:
            some = [one for one in own if one.judgement == judgement]
            if some:
                parts.append(fold(f"{len(some)} {judgement}", _list(some)))
    return "\n".join(parts)


def _list(found: Sequence[Finding]) -> str:
    return f'<ul class="claims">{"".join(map(_list_item, found))}</ul>'


def _list_item(one: Finding) -> str:
    body = [[Cell(e.name), Cell(e.text, mean=e.value), _count(e.seeds), _count(e.n)] for e in one.evidence]
    head = ["evidence", "effect [95 % interval]", "seeds", "images"]
    shown = Table(f"Evidence: {one.claim.sentence}", one.note, head, body, 1, 0)
    inner = table(shown, heading=False) if body else f"<p>{escape(one.note)}</p>"
    sentence = f'<span class="sentence">{escape(one.claim.sentence)}</span>'
    place = f'<span class="place">{escape(one.claim.place)}</span>'
    sign = f'<span aria-hidden="true">{SIGNS[one.judgement]}</span>'
    return (
        f'<li class="{_CLASSES[one.judgement]}"><details><summary><span class="verdict">{sign} {one.judgement}</span>'
        f"<span>{sentence} {place}</span></summary>\n{inner}</details></li>"
    )


def _cell(cell: Cell) -> str:
    value = "" if math.isnan(cell.mean) else f' data-value="{cell.mean:.6g}"'
    paper = f"<small>paper {escape(cell.paper)}</small>" if cell.paper else ""
    return f"<td{value}{' class=best' if cell.bold else ''}>{escape(cell.text)}{paper}</td>"


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", mean=float(value))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
