"""`shiftprism train`: a run by names; its flags are the fields of `Training`."""

from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shiftprism.cli._flags import with_flags
from shiftprism.training.settings import Training, read_settings, resolve

if TYPE_CHECKING:
    from shiftprism.training import Progress as Step

_WORDS = ("data", "backbone", "head", "preset")


def _train(
    data: Annotated[str | None, typer.Option(help="A data set by name: shiftprism data list. (digits)")] = None,
    backbone: Annotated[str | None, typer.Option(help="wrn-28-10, resnet18, resnet20, fast, …  (digits)")] = None,
    head: Annotated[str | None, typer.Option(help="vanilla, alpha, beta, gsd, cosine, …  (alpha-beta)")] = None,
    preset: Annotated[str | None, typer.Option(help="Where the settings start: paper, smoke, (laptop).")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. (runs/DATA-BACKBONE-HEAD-SEED)")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags override it.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the data are.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write events too.")] = False,
    **flags: Any,
) -> None:
    """Train a classifier by names. Killed at any moment, the same command with --resume ends with the same weights."""
    words: dict[str, Any] = {"data": "digits", "backbone": "digits", "head": "alpha-beta", "preset": "laptop"}
    file = read_settings(config) if config else {}
    words |= {name: str(file.pop(name)) for name in _WORDS if name in file}
    given = {"data": data, "backbone": backbone, "head": head, "preset": preset}
    words |= {name: value for name, value in given.items() if value is not None}
    training = resolve(words["preset"], file, flags)
    names = (words["data"], words["backbone"], words["head"])
    out = out or Path("runs") / f"{'-'.join(names)}-{training.seed}".replace("/", "_")
    _show(out, names, training, root, resume, tensorboard)


def _show(
    out: Path, names: tuple[str, str, str], training: Training, root: Path | None, resume: bool, tensorboard: bool
) -> None:
    from shiftprism import training as room
    from shiftprism.training.processes import Processes

    processes = Processes()
    speaks = processes.writes
    console = Console(quiet=not speaks)
    console.print(f"Training {names[1]} with the {names[2]} head on {names[0]} into {out}", soft_wrap=True)
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    try:
        with Progress(
            TextColumn("{task.description}"), BarColumn(), *times, console=console, disable=not speaks
        ) as bar:
            task = bar.add_task("", total=None, visible=False)  # errors come before any progress

            def tell(now: "Step") -> None:
                text = f"epoch {now.epoch:3} loss {now.loss:.3f} accuracy {now.accuracy:6.1%}"
                text += f" {now.images_per_second:6.0f}/s"
                bar.update(task, total=now.steps, completed=now.step, description=text, visible=True)

            done = room.run(out, *names, training, root, resume, tensorboard, tell, processes)
    except KeyboardInterrupt:
        console.print(f"Stopped. Finished epochs are in {out}; the same command with --resume goes on.", soft_wrap=True)
        raise typer.Exit(130) from None
    processes.close()
    result = done.result
    console.print(
        f"Test accuracy {result['test_accuracy']:.2%} of {result['test_images']} images after "
        f"{result['training_seconds']:.0f} s of training. The model: {out}",
        soft_wrap=True,
    )


def _describe(field: "Field[Any]") -> str:
    return f"{field.metadata['help']} (paper: {field.default})"


train = with_flags(_train, Training, _describe)
