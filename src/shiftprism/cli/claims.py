"""`shiftprism claims`: which of the paper's claims hold on the rows of a benchmark. It does not import torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from shiftprism.claims import Finding

_COLOURS = {"holds": "green", "contradicted": "red", "not shown": "yellow", "not measured": "dim"}


def claims(
    results: Annotated[Path, typer.Argument(help="A results folder of `shiftprism benchmark`, or its rows.jsonl.")],
    form: Annotated[Literal["text", "json", "md"], typer.Option("--format", help="How to print them.")] = "text",
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Print every number behind a judgement, not only what decided.")
    ] = False,
    any_data: Annotated[
        bool, typer.Option("--any-data", help="Judge on other data than the paper's too, such as your own images.")
    ] = False,
) -> None:
    """Judge each claim of the paper by 95 % intervals over seeds and images.

    A claim holds, is contradicted, is not shown, or was not measured.
    """
    from shiftprism._errors import wrong
    from shiftprism.claims import PAPER_DATA, judge, judge_paper_data, to_json, to_markdown
    from shiftprism.rows import Results, ResultsFolder

    measured = Results.read(results)
    # rows that are missing altogether are an error of `judge`, which says so
    judge_all = any_data or not measured.rows
    findings = judge(measured) if judge_all else judge_paper_data(measured, ResultsFolder.of(results))
    if not findings:
        got = f"rows of {', '.join(dict.fromkeys(row.data for row in measured.rows))}"
        expected = f"rows of the data that the paper's claims are about ({', '.join(PAPER_DATA)})"
        raise wrong("RESULTS", expected, got, "judge them all the same with --any-data")
    if form == "json":
        typer.echo(to_json(findings), nl=False)
    elif form == "md":
        typer.echo(to_markdown(findings))
    else:
        _print_findings(findings, evidence)


def _print_findings(findings: "list[Finding]", evidence: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from shiftprism.claims import SIGNS, count_judgements

    console = Console()
    for data in dict.fromkeys(finding.data for finding in findings):
        own = [finding for finding in findings if finding.data == data]
        console.print(f"\n{data}   {count_judgements(own)}\n", style="bold", highlight=False)
        table = Table(box=None, padding=(0, 2, 1, 0), header_style="underline")
        table.add_column("judgement", no_wrap=True)
        for title in ("claim", "evidence (95 % interval)"):
            table.add_column(title, overflow="fold", ratio=1)
        for one in (one for one in own if one.evidence):
            judgement = Text(f"{SIGNS[one.judgement]} {one.judgement}", style=_COLOURS[one.judgement])
            lines = [f"{line.name}: {line.text}" for line in (one.evidence if evidence else one.deciding)]
            numbers = Text("\n".join([*lines, one.note] if one.note else lines))
            table.add_row(judgement, Text.assemble(one.claim.sentence, "\n", (one.claim.place, "dim")), numbers)
        if table.row_count:
            console.print(table)
        for one in (one for one in own if not one.evidence):
            text = f"{SIGNS[one.judgement]} {one.judgement}: {one.claim.name} ({one.note})"
            console.print(text, style="dim", highlight=False)
