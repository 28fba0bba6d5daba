"""`shiftprism claims`: which of the paper's statements hold on the rows of a benchmark."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from shiftprism.claims import Finding

_COLOURS = {"holds": "green", "does not hold": "red", "not measured": "dim"}


def claims(
    results: Annotated[Path, typer.Argument(help="A results folder of `shiftprism benchmark`, or its rows.jsonl.")],
    form: Annotated[Literal["text", "json", "md"], typer.Option("--format", help="How to print them.")] = "text",
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Print every number behind a verdict, not only what decided.")
    ] = False,
) -> None:
    """Judge each claim of the paper by 95 % intervals over seeds and images: holds, does not hold, not measured."""
    from shiftprism._checks import wrong
    from shiftprism.benchmark import Results
    from shiftprism.claims import as_json, as_markdown, judge

    file = results / "rows.jsonl" if results.is_dir() else results
    if not file.is_file():
        raise wrong(
            "results", "a folder with rows.jsonl", results, "run `shiftprism benchmark --out` this folder first"
        )
    found = judge(Results.read(results))
    if form == "json":
        typer.echo(as_json(found), nl=False)
    elif form == "md":
        typer.echo(as_markdown(found))
    else:
        _print(found, evidence)


def _print(found: "list[Finding]", evidence: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from shiftprism.claims import SIGNS, counted

    console = Console()
    for data in dict.fromkeys(one.data for one in found):
        own = [one for one in found if one.data == data]
        console.print(f"\n{data}   {counted(own)}\n", style="bold", highlight=False)
        table = Table(box=None, padding=(0, 2, 1, 0), header_style="underline")
        table.add_column("verdict", no_wrap=True)
        for title in ("claim", "evidence (95 % interval)"):
            table.add_column(title, overflow="fold", ratio=1)
        for one in (one for one in own if one.verdict != "not measured" or one.evidence):
            verdict = Text(SIGNS[one.verdict], style=_COLOURS[one.verdict])
            lines = [f"{line.name}: {line.text}" for line in (one.evidence if evidence else one.short)]
            told = Text("\n".join([*lines, one.note] if one.note else lines))
            table.add_row(verdict, Text.assemble(one.claim.sentence, "\n", (one.claim.place, "dim")), told)
        if table.row_count:
            console.print(table)
        for one in (one for one in own if one.verdict == "not measured" and not one.evidence):
            console.print(f"{SIGNS[one.verdict]}: {one.claim.name} ({one.note})", style="dim", highlight=False)
