"""`shiftprism report`: a folder of results as one page, or as tables for a paper or a spreadsheet."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    results: Annotated[Path, typer.Argument(help="A folder that `shiftprism benchmark` wrote, or a file of rows.")],
    to: Annotated[
        Path | None,
        typer.Option(help="The page to write (RESULTS/report.html), or the folder for tables (printed by default)."),
    ] = None,
    kind: Annotated[str, typer.Option("--format", help="html, md, latex or csv.")] = "html",
) -> None:
    """Write one self-contained page that answers a reader's questions, or every table as Markdown, LaTeX or CSV."""
    from shiftprism._errors import choice, wrong

    choice("format", kind, ("html", "md", "latex", "csv"))  # before torch is imported
    if not results.exists():
        raise wrong("RESULTS", "a folder with rows.jsonl", results, "run `shiftprism benchmark` first")
    from shiftprism import report
    from shiftprism._files import write_text

    if kind == "html":
        path = to or (results if results.is_dir() else results.parent) / "report.html"
        if path.is_dir():
            path /= "report.html"
        write_text(path, report.make_page(results))
        typer.echo(f"Written: {path.resolve()}")
        return
    tables = report.make_tables(report.read_results(results))
    if to is None:
        typer.echo("\n".join(report.FORMATS[kind][0](one) for one in tables.values()), nl=False)
    else:
        paths = report.write_tables(tables, to, kind)
        typer.echo(f"Written: {len(paths)} tables in {to.resolve()}")
