"""`shiftprism report`: a folder of results as one page, or as tables for a paper or a spreadsheet."""

from pathlib import Path
from typing import Annotated

import typer

from shiftprism.cli._flags import check_new


def report(
    results: Annotated[
        Path | None, typer.Argument(help="A folder that `shiftprism benchmark` wrote, or a file of rows.")
    ] = None,
    monitor: Annotated[
        Path | None, typer.Option(help="Instead of RESULTS: the state of `shiftprism monitor`, as a page.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="With --monitor: the folder that was watched, for example images.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="The page to write (RESULTS/report.html), or the folder for tables (printed by default)."),
    ] = None,
    kind: Annotated[str, typer.Option("--format", help="html, md, latex or csv.")] = "html",
    rows: Annotated[
        str | None,
        typer.Option(
            help="Only these rows of the tables: alpha-beta,vanilla/msp,…: names, or several that are in a row."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is at --to.")] = False,
) -> None:
    """Write one self-contained page that answers a reader's questions, or every table as Markdown, LaTeX or CSV."""
    from shiftprism._errors import choice, wrong

    choice("format", kind, ("html", "md", "latex", "csv"))  # before torch is imported
    if (results is None) == (monitor is None):
        got = "neither" if results is None else "both"
        raise wrong("RESULTS", "given, or --monitor in its place,", got, "name results or the state of a monitor")
    if images is not None and (monitor is None or not images.is_dir()):
        raise wrong("--images", "a folder beside --monitor", images, "leave it out, or name the folder watched")
    if monitor is not None:
        _write_monitor_page(monitor, images, to, force)
        return
    assert results is not None
    if rows is not None and kind == "html":
        raise wrong("--rows", "left out for the page", rows, "add --format md, latex or csv")
    if not results.exists():
        raise wrong("RESULTS", "a folder with rows.jsonl", results, "run `shiftprism benchmark` first")
    from shiftprism import report
    from shiftprism._files import write_text

    if kind == "html":
        path = to or (results if results.is_dir() else results.parent) / "report.html"
        if path.is_dir():
            path /= "report.html"
        if to is not None:  # the page in RESULTS is there to be written again
            check_new("to", path, force)
        write_text(path, report.make_page(results))
        typer.echo(f"Written: {path.resolve()}")
        return
    tables = report.make_tables(report.read_results(results))
    if rows is not None:
        tables = report.choose_rows(tables, [word.strip() for word in rows.split(",")])
    if to is None:
        typer.echo("\n".join(report.FORMATS[kind][0](one) for one in tables.values()), nl=False)
    else:
        for stem in tables:
            check_new("to", to / f"{stem}.{report.FORMATS[kind][1]}", force)
        paths = report.write_tables(tables, to, kind)
        typer.echo(f"Written: {len(paths)} tables in {to.resolve()}")


def _write_monitor_page(state: Path, images: Path | None, to: Path | None, force: bool) -> None:
    """The page of a monitor, beside its state by default."""
    from shiftprism import report
    from shiftprism._files import write_text
    from shiftprism.monitor import Monitor

    path = to or state.with_name("monitor.html")
    if path.is_dir():
        path /= "monitor.html"
    if to is not None:
        check_new("to", path, force)
    write_text(path, report.make_monitor_page(Monitor.load(state), images))
    typer.echo(f"Written: {path.resolve()}")
