"""Class names: which ones are the same, and that known and unseen classes do not overlap."""

import re
from collections.abc import Sequence

from shiftprism._checks import wrong

_BETWEEN = re.compile(r"[\s_\-/]+")


def words(name: str) -> list[str]:
    """The words of a class name.

    >>> words("pickup_truck"), words("Lawn mower")
    (['pickup', 'truck'], ['Lawn', 'mower'])
    """
    return [word for word in _BETWEEN.split(name) if word]


def check_disjoint(known: Sequence[str], unseen: Sequence[str], where: str = "unseen classes") -> None:
    """An error that names the classes on both sides. "Pickup truck" and "pickup_truck" count as one class."""
    keys = {_key(name) for name in known}
    both = [name for name in unseen if _key(name) in keys]
    if both:
        advice = "leave these classes out with Dataset.only(…), or rename them where they mean different things"
        raise wrong(where, "classes that the model does not know", f"{', '.join(both)} on both sides", advice)


def _key(name: str) -> str:
    return "_".join(words(name)).casefold()
