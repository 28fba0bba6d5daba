"""`shiftprism list`: the scores, calibrators, heads and corruptions by name, one line each."""

from collections.abc import Sequence

import typer

app = typer.Typer(help="List the scores, calibrators, heads or corruptions by name.", no_args_is_help=True)


@app.command("scores")
def list_scores() -> None:
    """List the scores: formula, what each reads, the class that is fitted and what its fit needs, and the paper."""
    from shiftprism.scores import describe_scores

    _print_table(describe_scores())
    typer.echo("\nHigher means more in-distribution, for every score. f features, s similarities, l logits, p softmax.")


@app.command("calibrators")
def list_calibrators() -> None:
    """List the calibrators: what each computes, its class, and whether it keeps predictions and fits bare logits."""
    from shiftprism.calibrators import describe_calibrators

    _print_table(describe_calibrators())
    typer.echo("\nz logits, raw the linear layer's own output, T the temperature.")


@app.command("heads")
def list_heads() -> None:
    """List the heads: name, class, formula of the logit, and the paper."""
    from shiftprism.heads import describe_heads

    _print_table(describe_heads())
    typer.echo(
        "\nf features, w_k class weights, s_k = w_k·f/|f|, φ_k the angle between f and w_k, g = sigmoid(BN(a·f))."
    )


@app.command("corruptions")
def list_corruptions() -> None:
    """List the corruptions: the 15 that models are tested on, and extras, which a fit may use."""
    from shiftprism.corruptions import describe_corruptions

    _print_table(describe_corruptions())
    typer.echo(
        "\nSeverities have CIFAR-C's parameters up to a shorter side of 32 pixels, ImageNet-C's from 224 on, and\n"
        "between them a power of the side."
    )


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows of cells, the titles first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for place, title in enumerate(rows[0]):
        table.add_column(title, overflow="fold", no_wrap=place == 0)  # a name is there to be copied
    for cells in rows[1:]:
        table.add_row(*(Text(cell) for cell in cells))  # Text: brackets in a formula are no markup
    Console().print(table)
