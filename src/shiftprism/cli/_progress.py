"""What `score` prints while it works and at its end, on this machine or on a cluster."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shiftprism.cli._verdict_files import SKIPPED

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20
"""So many images are shown on the terminal."""


def print_counts(console: "Console", kinds: Counter[str], about: str) -> None:
    """How many images are of each kind, in a line."""
    total = sum(kinds.values())
    parts = [f"{kinds[kind]} {kind}" for kind in ("in-distribution", "covariate", "concept", SKIPPED) if kinds[kind]]
    console.print(f"{total} images by {about}: {', '.join(parts)}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def show_progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    bars = Console(stderr=True)
    bars.quiet = not bars.is_terminal or total <= SHOWN  # elsewhere a bar that vanishes leaves an empty line
    with Progress(*columns, console=bars, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
