"""`shiftprism benchmark`: models × seeds × shifts × scores and calibrators, then tables, figures, claims and a page."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shiftprism.benchmark import Plan
from shiftprism.cli._clusters import check_cluster
from shiftprism.cli._flags import Device, with_flags

if TYPE_CHECKING:
    from shiftprism.benchmark import Outcome


def _benchmark(
    out: Annotated[Path, typer.Option(help="The folder for everything; the same command resumes it.")] = Path(
        "benchmark-results"
    ),
    config: Annotated[Path | None, typer.Option(help="A TOML file of training settings: epochs = 10, …")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time. (one a GPU, or one a core)")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run the cells on a Ray cluster: its address, auto, or local. (extra: cluster)")
    ] = None,
    device: Device = "auto",
    **flags: Any,
) -> None:
    """Train what is missing, measure every score and calibrator on every shift, and judge the paper's claims.

    Killed at any moment, the same command resumes and ends with the same rows. More models, seeds, scores or data sets
    of the same suite may be added to the same folder.
    """
    from shiftprism.training import read_config

    settings: dict[str, Any] = read_config(config) if config else {}
    named = {name: settings.pop(name) for name in ("backbone", "preset") if name in settings}
    plan = Plan(**(named | flags), settings=settings).resolve()
    if cluster is not None:
        check_cluster(cluster)
    console = Console()
    outcome = run_study(console, plan, out, jobs=jobs, cluster=cluster, device=device)
    _print_outcome(console, out, outcome)


benchmark = with_flags(_benchmark, Plan, describe=lambda field: str(field.metadata["help"]))


def run_study(console: Console, plan: Plan, out: Path, **options: Any) -> "Outcome":
    """Run a plan under a progress bar; `options` go to `study`. After Ctrl-C the same command resumes the folder."""
    from shiftprism.benchmark import study

    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (BarColumn(), TaskProgressColumn(), *times, TextColumn("{task.description}"))
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("", total=1.0, visible=False)  # errors about the data come before any progress

            def progress(share: float, text: str) -> None:
                bar.update(task, completed=share, description=text, visible=True)

            command = shlex.join(["shiftprism", *sys.argv[1:]])
            return study(plan, out, progress=progress, command=command, **options)
    except KeyboardInterrupt:
        console.print(f"Stopped. What is finished is in {out}; the same command resumes it.", soft_wrap=True)
        raise typer.Exit(130) from None


def _print_outcome(console: Console, out: Path, outcome: "Outcome") -> None:
    """Publish the page and print a summary; cells that failed are named last, and make the command fail."""
    from shiftprism import report
    from shiftprism.claims import count_judgements

    for note in outcome.notes:
        console.print(note, soft_wrap=True, highlight=False)
    if outcome.results.rows:
        findings = report.publish(out, outcome.results)
        console.print(f"{len(outcome.results.rows)} rows in {out / 'rows.jsonl'}", soft_wrap=True)
        if findings:  # the paper claims nothing about a user's own data
            counts = count_judgements(findings)
            console.print(
                f"The paper's claims on these data: {counts}. To see them: shiftprism claims {out}", soft_wrap=True
            )
        console.print(f"The page: {(out / 'report.html').resolve()}", soft_wrap=True)
    errors = Console(stderr=True)
    for name, error in outcome.failed.items():
        errors.print(f"Failed: {name}: {error}", style="red", soft_wrap=True, highlight=False, markup=False)
    if outcome.failed:
        errors.print("The same command tries these again.")
        raise typer.Exit(1)
