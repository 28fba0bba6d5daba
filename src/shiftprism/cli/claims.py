"""`shiftprism claims`: which of the paper's claims hold on the rows of a benchmark. It does not import torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from shiftprism.claims import Finding
    from shiftprism.rows import Results

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
    seeds_needed: Annotated[
        bool, typer.Option("--seeds-needed", help="Print what would settle each open claim: seeds, and cheapest runs.")
    ] = False,
    run_minutes: Annotated[
        float | None, typer.Option(help="With --seeds-needed: core-minutes of one training run. (28)", min=0.01)
    ] = None,
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
    if seeds_needed:
        _print_seeds_needed(measured if judge_all else measured.where(data=PAPER_DATA), form, run_minutes)
    elif form == "json":
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


def _print_seeds_needed(measured: "Results", form: str, run_minutes: float | None) -> None:
    """The seeds that each open claim would need, and the cheapest runs."""
    from rich.console import Console
    from rich.table import Table

    from shiftprism import claims as room

    minutes = run_minutes or room.RUN_MINUTES
    found = room.open_claims(measured)
    steps = room.plan_runs(found, minutes)
    if form == "json":
        typer.echo(room.seeds_to_json(found, steps), nl=False)
        return
    if form == "md":
        typer.echo(f"{room.seeds_to_markdown(found)}\n{room.runs_to_markdown(steps)}", nl=False)
        return
    console = Console()
    if not found:
        console.print("No claim is open.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for title in ("open claim", "effect seen", "seeds now"):
        table.add_column(title, overflow="fold", ratio=1)
    table.add_column("seeds needed", no_wrap=True)
    for one in found:
        needed = one.required_text + (f" ({one.outcome})" if one.required_seeds else "")
        table.add_row(f"{one.data} {one.claim.name}", one.hardest.text, one.seeds_text, needed)
    console.print(table)
    for note in dict.fromkeys(f"{one.data} {one.claim.name}: {one.note}" for one in found if one.note):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    console.print(f"\nThe cheapest runs, at {minutes:g} core-minutes each:" if steps else "\nNo runs would do.")
    for step in steps:
        names = ", ".join(f"{one.data} {one.claim.name}" for one in step.claims)
        text = f"  {step.text}: {step.minutes / 60:.1f} core-hours settle {names}"
        console.print(text, highlight=False, soft_wrap=True)
