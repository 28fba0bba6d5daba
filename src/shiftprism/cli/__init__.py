"""The command line: words in, printing out; nothing else in the package prints. `--help` answers without torch."""

import sys
from collections.abc import Sequence

import typer

from shiftprism import __version__
from shiftprism.cli import (
    benchmark,
    calibrate,
    claims,
    corrupt,
    data,
    demo,
    doctor,
    explain,
    export,
    fit,
    listing,
    monitor,
    report,
    score,
    serve,
    show,
    store,
    train,
)
from shiftprism.cli._boundary import run

app = typer.Typer(
    name="shiftprism",
    help="Tells when an image classifier is out of its depth, and whether the style or the concept has shifted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("fit")(fit.fit)
app.command("score")(score.score)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("monitor")(monitor.monitor)
app.command("serve")(serve.serve)
app.add_typer(store.app, name="store")
data.app.command("show")(show.show)
app.add_typer(data.app, name="data")
app.command("corrupt")(corrupt.corrupt)
app.command("train")(train.train)
app.add_typer(listing.app, name="list")
app.command("calibrate")(calibrate.calibrate)
app.command("benchmark")(benchmark.benchmark)
app.command("claims")(claims.claims)
app.command("report")(report.report)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"shiftprism {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """The options of the program itself; every command has its own."""


def main(words: Sequence[str] | None = None) -> None:
    """The console script; `words` are those after `shiftprism`. No error ends in a traceback on the terminal."""
    sys.exit(run(app, sys.argv[1:] if words is None else words))
