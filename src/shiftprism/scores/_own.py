"""Scores by name: those of the table, and a user's own by `module:Name`."""

import importlib
import sys
from pathlib import Path
from typing import Any

from shiftprism._checks import choice, wrong
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
    implementation = _import(name)
    usable = issubclass(implementation, Fitted) if isinstance(implementation, type) else callable(implementation)
    if not usable:
        advice = "write a function Outputs -> (N,), or subclass shiftprism.scores.Fitted"
        raise wrong("score", "a function or a Fitted class", f"{name}, {implementation!r:.60}", advice)
    return Entry(name, implementation, "", (), "")


def _import(name: str) -> Any:
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    # the current folder comes first while the module is imported, as in `python -m`, and last for its later imports
    sys.path.insert(0, folder)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module is a user's program: it may raise anything
        got = f"{name} ({type(error).__name__}: {' '.join(str(error).split())})"
        advice = f"name a module in {folder} or an installed one, and a function or class in it"
        raise wrong("score", "module:Name", got, advice) from error
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
