"""`shiftprism store`: look at, export, check and prune what a service has stored."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shiftprism.store import Store, Stream

app = typer.Typer(no_args_is_help=True, help="List, export, check, reset and prune what a service has stored.")

STORE_HELP = "A file (SQLite) or a postgresql:// URL. Default: $SHIFTPRISM_STORE, or shiftprism.sqlite here."
Place = Annotated[str, typer.Option("--store", envvar="SHIFTPRISM_STORE", show_envvar=False, help=STORE_HELP)]
DEFAULT_STORE = "shiftprism.sqlite"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command("list")
def list_(store: Place = DEFAULT_STORE) -> None:
    """List the streams: model, detector, observations, and what the monitor says."""
    from shiftprism.store import monitor_from_bytes

    with _open(store) as opened:
        for stream in opened.streams():
            began = datetime.fromtimestamp(stream.began, timezone.utc).isoformat(" ", "seconds")
            typer.echo(f"{stream.model} ({stream.detector[:12]}), since {began}")
            typer.echo(f"    {monitor_from_bytes(opened.state(stream)[1]).status()}")
            labelled, right = opened.accuracy(stream)
            if labelled:
                typer.echo(f"    {right:,} of {labelled:,} labelled predictions are right")
        typer.echo(f"Looked in {opened.where}")


@app.command("export")
def export_(
    to: Annotated[str, typer.Option(help="A file, or just parquet, csv or jsonl: observations.parquet, say.")],
    store: Place = DEFAULT_STORE,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write every observation to a Parquet, CSV or JSON-lines file."""
    from shiftprism.cli._flags import check_new
    from shiftprism.store import export

    path = Path(f"observations.{to}") if to in ("parquet", "csv", "jsonl") else Path(to)
    check_new("to", path, force)
    with _open(store) as opened:
        typer.echo(f"{export(opened, path):,} observations in {path}")


@app.command("prune")
def prune_(
    older_than: Annotated[str, typer.Option(help="An age such as 30d, 12h, 90m or 45s.")],
    store: Place = DEFAULT_STORE,
) -> None:
    """Delete observations of that age, with their images. The monitors keep what they have seen."""
    from shiftprism.store import MonitorFold

    age = parse_age("older_than", older_than)
    with _open(store) as opened:
        typer.echo(f"{opened.prune(time.time() - age, MonitorFold()):,} observations deleted")


@app.command("check")
def check_(store: Place = DEFAULT_STORE) -> None:
    """Make every monitor anew from the stored observations and compare. The exit status is 1 where one differs."""
    from shiftprism.store import MonitorFold, StoreError

    failed = 0
    with _open(store) as opened:
        for stream in opened.streams():
            until, replayed, stored = opened.replay(stream, MonitorFold())
            failed += replayed != stored
            words = "equals a replay" if replayed == stored else "DIFFERS from a replay"
            typer.echo(f"{stream.model} ({stream.detector[:12]}): the monitor up to observation {until} {words}")
        if failed:
            advice = "restore a backup, or reset these monitors"
            raise StoreError(f"{failed} of {len(opened.streams())} monitors differ from a replay; {advice}")


@app.command("reset")
def reset_(
    reason: Annotated[str, typer.Option(help="Why; it is stored with the reset.")],
    model: Annotated[str | None, typer.Option(help="The name of the model. Default: the only one.")] = None,
    store: Place = DEFAULT_STORE,
) -> None:
    """Start a new promise of the monitor, after the cause of an alarm was dealt with."""
    from shiftprism.store import MonitorFold

    with _open(store) as opened:
        stream = _choose_stream(opened, model)
        sequence = opened.reset(stream, MonitorFold(), reason)
        typer.echo(f"{stream.model} ({stream.detector[:12]}): reset after observation {sequence}")


def parse_age(argument: str, text: str) -> float:
    """Seconds of an age such as 30d.

    >>> parse_age("older_than", "2h")
    7200.0
    """
    from shiftprism._errors import wrong

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise wrong(argument, "an age such as 30d, 12h, 90m or 45s", repr(text), "give a number and a unit")
    return float(match[1]) * _UNITS[match[2]]


@contextmanager
def _open(place: str) -> "Iterator[Store]":
    """The store at a place; an error about what is in it names the place."""
    from shiftprism.store import StoreError, open_store

    with open_store(place, create=False) as opened:
        try:
            yield opened
        except StoreError as error:
            raise error if opened.where in str(error) else StoreError(f"{opened.where}: {error}") from error


def _choose_stream(store: "Store", model: str | None) -> "Stream":
    """The newest stream of a model."""
    from shiftprism._errors import choice, wrong

    newest = {stream.model: stream for stream in store.streams()}
    if not newest:
        raise wrong("store", "one with observations", "an empty one", "serve a model with it first")
    if model is None and len(newest) > 1:
        raise wrong("model", "one of " + ", ".join(sorted(newest)), "none", "name one")
    return newest[choice("model", model if model is not None else next(iter(newest)), newest)]
