"""`shiftprism benchmark`: models × seeds × shifts × scores and calibrators, then tables, figures, claims and a page."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from shiftprism.benchmark import Outcome

_WORDS = ("backbone", "preset")


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def benchmark(
    suite: Annotated[
        str | None, typer.Option(help="digits (minutes, nothing to download) or paper (CIFAR-10 and CIFAR-100).")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Your own images: a folder of class folders, a file or a name. With paper: cifar10 or cifar100."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for everything; the same command goes on with it.")] = Path(
        "benchmark-results"
    ),
    models: Annotated[
        str | None, typer.Option(help="vanilla,alpha-beta,duq:2,…: names, or name:seeds. (all that the backbone can)")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds of each model. (3 for the paper's four heads, 1 for others)")
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option(help="A trained model's folder, or NAME=FOLDER; may be repeated. Nothing else is trained then."),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option(
            min=0, max=0.9, help="Share that --runs without a config.toml were not trained on. (0, the paper's)"
        ),
    ] = 0.0,
    scores: Annotated[str | None, typer.Option(help="u,msp,…: see shiftprism scores. (all)")] = None,
    calibrators: Annotated[str | None, typer.Option(help="temperature,alpha-beta,… (all)")] = None,
    corruptions: Annotated[str | None, typer.Option(help="motion_blur,fog,… (the 15 of CIFAR-C)")] = None,
    images: Annotated[int, typer.Option(min=0, help="At most so many images of each shifted set; 0 for all.")] = 0,
    corrupted_images: Annotated[
        int, typer.Option(min=0, help="At most so many of each corruption, by far the most sets. (as --images)")
    ] = 0,
    hold_out: Annotated[
        str | None, typer.Option(help="Classes of your own data that no model learns. (every fifth)")
    ] = None,
    far: Annotated[str | None, typer.Option(help="Other images than your own, in another style too.")] = None,
    size: Annotated[int, typer.Option(min=0, help="Scale your images to size × size; 0 leaves them.")] = 0,
    backbone: Annotated[
        str | None, typer.Option(help="digits, fast, resnet18, wrn-28-10, … (fast; wrn-28-10 for the preset paper)")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="How to train: smoke, laptop or paper. (laptop)")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of training settings: epochs = 10, …")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the data are.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time; they share the cores. (one a core)")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run the cells on a Ray cluster: its address, auto, or local. (extra: cluster)")
    ] = None,
) -> None:
    """Train what is missing, measure every score and calibrator on every shift, and say which claims hold.

    Killed at any moment, the same command goes on and ends with the same rows. More models, seeds, scores or data sets
    of the same suite may be added to the same folder.
    """
    from shiftprism import benchmark as room
    from shiftprism.training.settings import read_settings

    file: dict[str, Any] = read_settings(config) if config else {}
    words = {name: file.pop(name, None) for name in _WORDS}
    plan = room.make_plan(
        suite,
        data,
        models=_list(models),
        seeds=seeds,
        runs=runs or (),
        held_out=held_out,
        scores=_list(scores),
        calibrators=_list(calibrators),
        corruptions=_list(corruptions),
        images=images,
        corrupted_images=corrupted_images,
        backbone=backbone or words["backbone"],
        preset=preset or words["preset"],
        settings=file,
        hold_out=_list(hold_out) or (),
        far=far,
        size=size,
        root=root,
    )
    command = shlex.join(["shiftprism", *sys.argv[1:]])
    console = Console()
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    try:
        with Progress(
            BarColumn(), TaskProgressColumn(), *times, TextColumn("{task.description}"), console=console
        ) as bar:
            task = bar.add_task("", total=1.0, visible=False)  # errors about the data come before any progress

            def tell(share: float, text: str) -> None:
                bar.update(task, completed=share, description=text, visible=True)

            outcome = room.study(plan, out, jobs or os.cpu_count() or 1, cluster, tell, command)
    except KeyboardInterrupt:
        console.print(f"Stopped. What is finished is in {out}; the same command goes on with it.", soft_wrap=True)
        raise typer.Exit(130) from None
    _said(console, out, outcome)


def _said(console: Console, out: Path, outcome: "Outcome") -> None:
    """The page and a summary; cells that failed are named last, and make the command fail."""
    from shiftprism import claims, report

    for note in outcome.notes:
        console.print(note, soft_wrap=True, highlight=False)
    if outcome.results.rows:
        report.publish(out)
        findings = claims.read(out / "claims.json")
        verdicts = [finding.verdict for finding in findings]
        counted = ", ".join(f"{verdicts.count(word)} {word}" for word in ("holds", "does not hold", "not measured"))
        console.print(f"{len(outcome.results.rows)} rows in {out / 'rows.jsonl'}", soft_wrap=True)
        console.print(
            f"The paper's claims on these data: {counted}. They are in shiftprism claims {out}", soft_wrap=True
        )
        console.print(f"The page: {(out / 'report.html').resolve()}", soft_wrap=True)
    for name, error in outcome.failed.items():
        console.print(f"Failed: {name}: {error}", style="red", soft_wrap=True, highlight=False)
    if outcome.failed:
        console.print("The same command tries these again.")
        raise typer.Exit(1)
