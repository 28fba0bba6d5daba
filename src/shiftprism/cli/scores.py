"""`shiftprism scores`: every score by name, with its formula, what it reads and where it comes from."""

import typer


def scores() -> None:
    """List the scores: formula, what each reads, whether it is fitted to data first, and its paper."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from shiftprism.scores import SCORES

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for title in ("name", "formula", "reads", "fitted", "paper"):
        table.add_column(title, overflow="fold")
    for name, entry in SCORES.items():
        fit = ("yes" if not entry.needs else "with " + ", ".join(entry.needs)) if entry.fitted else "no"
        cells = (name, entry.formula, ", ".join(entry.reads), fit, entry.paper)
        table.add_row(*(Text(cell) for cell in cells))  # as it is: brackets are no markup
    console = Console()
    console.print(table)
    typer.echo("\nHigher means more in-distribution, for every score. f features, s similarities, l logits, p softmax.")
