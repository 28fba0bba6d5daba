"""Scores by name: those of the table, and a user's own by `module:Name`."""

from shiftprism._checks import choice, wrong
from shiftprism._imports import import_named
from shiftprism.rows import is_own_score
from shiftprism.scores._entry import Entry
from shiftprism.scores._fitted import Fitted
from shiftprism.scores._table import SCORES


def find_score(name: str) -> Entry:
    """The entry of a score: by its name in `SCORES`, or a user's own by `module:Name`.

    The module lies in the current folder or is installed. `Name` is a function `Outputs -> (N,)`, or a subclass of
    `Fitted`; as for every score, higher means more in-distribution.

    >>> find_score("energy") is SCORES["energy"]
    True
    >>> find_score("shiftprism.scores:msp").ready
    True
    """
    if not is_own_score(name):
        return SCORES[choice("scores", name, SCORES)]
    implementation = import_named("score", name)
    usable = issubclass(implementation, Fitted) if isinstance(implementation, type) else callable(implementation)
    if not usable:
        advice = "write a function Outputs -> (N,), or subclass shiftprism.scores.Fitted"
        raise wrong("score", "a function or a Fitted class", f"{name}, {implementation!r:.60}", advice)
    return Entry(name, implementation, "", (), "")
