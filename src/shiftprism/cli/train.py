"""`shiftprism train`: a run by names; its flags are the fields of `Training`."""

from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shiftprism.cli._flags import Device, with_flags
from shiftprism.training import PRESETS, Setup, Training, read_config, resolve

if TYPE_CHECKING:
    from shiftprism.training import Progress as Step

_DEFAULTS = {"data": "digits", "backbone": "digits", "head": "alpha-beta", "preset": "laptop"}


def _train(
    data: Annotated[str | None, typer.Option(help="A data set by name: shiftprism data list. (digits)")] = None,
    backbone: Annotated[str | None, typer.Option(help="wrn-28-10, resnet18, resnet20, fast, …  (digits)")] = None,
    head: Annotated[str | None, typer.Option(help="vanilla, alpha, beta, gsd, cosine, …  (alpha-beta)")] = None,
    preset: Annotated[
        str | None, typer.Option(help="The settings to start from: laptop-long, laptop-robust, paper, smoke, (laptop).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. (runs/DATA-BACKBONE-HEAD-SEED)")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags override it.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the data are.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")] = False,
    device: Device = "auto",
    **flags: Any,
) -> None:
    """Train a classifier by names. Killed at any moment, the same command with --resume ends with the same weights."""
    file = read_config(config) if config else {}
    from_file = {name: str(file.pop(name)) for name in _DEFAULTS if name in file}
    given = {"data": data, "backbone": backbone, "head": head, "preset": preset}
    names = _DEFAULTS | from_file | {name: value for name, value in given.items() if value is not None}
    training = resolve(names.pop("preset"), file, flags)
    out = out or Path("runs") / f"{'-'.join(names.values())}-{training.seed}".replace("/", "_")
    _run(out, Setup(**names, training=training, root=root), resume=resume, tensorboard=tensorboard, device=device)


def _run(out: Path, setup: Setup, *, device: str, **options: bool) -> None:
    """Train behind a progress bar and print the result; of several processes one prints."""
    from shiftprism.training import Processes, run

    processes = Processes(device)
    console = Console(quiet=not processes.writes)
    console.print(f"Training {setup.backbone} with the {setup.head} head on {setup.data} into {out}", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not processes.writes)
    task = bar.add_task("", total=None, visible=False)  # shown from the first step on: errors come before it

    def show(now: "Step") -> None:
        text = f"epoch {now.epoch:3} loss {now.loss:.3f} accuracy {now.accuracy:6.1%} {now.images_per_second:6.0f}/s"
        bar.update(task, total=now.steps, completed=now.step, description=text, visible=True)

    try:
        with bar:
            done = run(out, setup, progress=show, processes=processes, device=device, **options)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. Finished epochs are in {out}; add --resume to the same command to resume.", soft_wrap=True
        )
        raise typer.Exit(130) from None
    processes.close()
    result = done.result
    console.print(
        f"Test accuracy {result['test_accuracy']:.2%} of {result['test_images']} images after "
        f"{result['training_seconds']:.0f} s of training. The model: {out}",
        soft_wrap=True,
    )


def _describe(field: "Field[Any]") -> str:
    return f"{field.metadata['help']} (paper: {getattr(PRESETS['paper'], field.name)})"


train = with_flags(_train, Training, _describe)
