"""The one shape every error about an argument has: "Expected `x` … but got …; what to do". Nothing here needs NumPy."""

from typing import Any


def wrong(argument: str, expected: str, got: object, advice: str) -> ValueError:
    """The error for an argument that is not what it should be, to be raised by the caller.

    >>> raise wrong("alpha", "in (0, 1)", 3, "take a smaller one")
    Traceback (most recent call last):
    ...
    ValueError: Expected `alpha` to be in (0, 1) but got 3; take a smaller one.
    """
    return ValueError(f"Expected `{argument}` to be {expected} but got {got}; {advice}.")


def choice(argument: str, value: str, known: Any) -> str:
    """`value` if it is among the `known` names, an error that lists them otherwise."""
    if value not in known:
        raise wrong(argument, "one of " + ", ".join(sorted(known)), repr(value), "choose one of these names")
    return value
