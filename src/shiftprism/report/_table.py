"""A table as data, and the same table as Markdown, LaTeX and CSV."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from shiftprism._errors import wrong

NONE = "–"
"""The text of a cell where nothing was measured."""
Section = Literal["detect", "all scores", "shift", "trust", "paper"]
"""The question of the page that a table or figure answers."""


class Cell(NamedTuple):
    """One cell: the printed text, the paper's number beside it, and the numbers behind both."""

    text: str = NONE
    bold: bool = False
    paper: str = ""
    """The paper's own number with its marks, as it prints it; empty where it has none."""
    mean: float = math.nan
    std: float = math.nan
    seeds: int = 0
    n: int = 0
    paper_mean: float = math.nan
    """The paper's number, in the units of `mean`."""
    scale: float = 1.0
    """The printed number is `scale` times the mean: 100 for per cent."""
    digits: int = 1

    @property
    def short(self) -> str:
        """The mean without its deviation, where there is one; else the text."""
        return self.text if math.isnan(self.mean) else f"{self.scale * self.mean:.{self.digits}f}"


class Table(NamedTuple):
    """The first `labels` columns name a row, the others hold numbers."""

    title: str
    note: str
    head: list[str]
    body: list[list[Cell]]
    labels: int
    group: int = 1
    """A new group of rows begins where one of the first `group` columns changes."""
    section: Section = "detect"
    stem: str = ""
    """The name of its file, and its label in LaTeX."""

    def new_group(self, row: int) -> bool:
        """Whether a line is drawn above this row."""
        names = [[cell.text for cell in line[: self.group]] for line in self.body[max(row - 1, 0) : row + 1]]
        return row > 0 and names[0] != names[1]


def choose_rows(tables: Mapping[str, Table], words: Sequence[str]) -> dict[str, Table]:
    """The tables with the chosen rows alone. A word is a name in the row, or several joined by "/" that are all in it.

    >>> table = Table("A", "B.", ["model", "score", "n"], [label_cells("vanilla", score, "1") for score in "gh"], 2)
    >>> [[cell.text for cell in line] for line in choose_rows({"a": table}, ["vanilla/h"])["a"].body]
    [['vanilla', 'h', '1']]
    """
    wanted = {word: set(word.split("/")) for word in words}
    found: set[str] = set()
    chosen = {}
    for stem, table in tables.items():
        body = []
        for line in table.body:
            names = {cell.text for cell in line[: table.labels]}
            matches = {word for word, parts in wanted.items() if parts <= names}
            found |= matches
            body += [line] if matches else []
        if body:
            chosen[stem] = table._replace(body=body, note=f"{table.note} Some rows of more, with the bold of all.")
    if missing := [word for word in words if word not in found]:
        lines = [(line, table.labels) for table in tables.values() for line in table.body]
        there = dict.fromkeys(cell.text for line, labels in lines for cell in line[:labels] if not cell.text.isdigit())
        advice = f"there are {', '.join(there)}"
        raise wrong("rows", "models, scores or calibrators of the tables", ", ".join(missing), advice)
    return chosen


def label_cells(*texts: str) -> list[Cell]:
    """The cells that name a row."""
    return [Cell(text) for text in texts]


def to_markdown(table: Table) -> str:
    """GitHub's Markdown: ours first, the paper's number in parentheses after it.

    >>> print(to_markdown(Table("A", "B.", ["score", "SVHN"], [[Cell("u"), Cell("95.1", True, "99.5*")]], 1)))
    ### A
    <BLANKLINE>
    | score | SVHN |
    | :-- | --: |
    | u | **95.1** (99.5\\*) |
    <BLANKLINE>
    B.
    <BLANKLINE>
    """
    rule = [":--"] * table.labels + ["--:"] * (len(table.head) - table.labels)
    lines = [_escape(table.head), rule, *([_markdown_cell(cell) for cell in line] for line in table.body)]
    drawn = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"### {table.title}\n\n{drawn}\n\n{_escape([table.note])[0]}\n"


def to_latex(table: Table) -> str:
    r"""A `table*` for the packages booktabs, graphicx and xcolor (the paper's numbers are grey).

    Its title is the short caption too, for a list of tables, and `\ref{tab:STEM}` refers to it by the name of its file.
    """
    columns = "l" * table.labels + "r" * (len(table.head) - table.labels)
    lines = [" & ".join(map(_tex, table.head)) + r" \\", r"\midrule"]
    for number, line in enumerate(table.body):
        lines += [r"\midrule"] if table.new_group(number) else []
        lines.append(" & ".join(map(_tex_cell, line)) + r" \\")
    body, title = "\n".join(lines), _tex(table.title)
    label = f"\\label{{tab:{table.stem}}}\n" if table.stem else ""
    return (
        "\\begin{table*}\n\\centering\n\\resizebox{\\linewidth}{!}{%\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}}}\n"
        f"\\caption[{{{title}}}]{{\\textbf{{{title}}} {_tex(table.note)}}}\n{label}\\end{{table*}}\n"
    )


def to_csv(table: Table) -> str:
    """One line a cell: the names, the column, then text, mean, std, seeds, n, bold and the paper's number."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*table.head[: table.labels], "column", "mean", "std", "seeds", "n", "bold", "paper", "text"])
    for line in table.body:
        own = [cell.text for cell in line[: table.labels]]
        for column, cell in zip(table.head[table.labels :], line[table.labels :], strict=True):
            if cell.text != NONE or cell.paper:
                numbers = ["" if math.isnan(value) else repr(value) for value in (cell.mean, cell.std)]
                counts = [cell.seeds or "", cell.n or ""]
                writer.writerow([*own, column, *numbers, *counts, int(cell.bold), cell.paper, cell.text])
    return file.getvalue()


def _markdown_cell(cell: Cell) -> str:
    text, paper = _escape([cell.text, cell.paper])
    own = f"**{text}**" if cell.bold else text
    return f"{own} ({paper})" if paper else own


def _escape(texts: list[str]) -> list[str]:
    return [re.sub(r"([|*_])", r"\\\1", text) for text in texts]


def _tex_cell(cell: Cell) -> str:
    own = rf"\textbf{{{_tex(cell.text)}}}" if cell.bold else _tex(cell.text)
    return rf"{own} \textcolor{{gray}}{{({_tex(cell.paper)})}}" if cell.paper else own


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


_TEX = {letter: "\\" + letter for letter in "%_&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "†": r"$\dagger$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "<": r"$<$",
    ">": r"$>$",
    "−": r"$-$",
    "×": r"$\times$",
    "→": r"$\to$",
}
