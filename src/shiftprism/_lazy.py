"""Names of a package that load on first use, so that importing the package does not import torch."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def load_lazily(
    package: str, names: Sequence[str], modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose public names are `names`.

    `modules` says which module holds which of them; the others are there from the start. The package imports the lazy
    ones under TYPE_CHECKING too, so that a type checker sees them.

    >>> load, _ = load_lazily("numbers", ["Fraction"], {"fractions": ["Fraction"]})
    >>> load("Fraction")(2, 4)
    Fraction(1, 2)
    >>> load("Oracle")
    Traceback (most recent call last):
    ...
    AttributeError: module 'numbers' has no attribute 'Oracle'; its public names are Fraction
    """
    holder = {name: module for module, held in modules.items() for name in held}

    def load(name: str) -> Any:
        if name not in holder:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}; its public names are {', '.join(names)}"
            )
        return getattr(import_module(holder[name]), name)

    return load, lambda: sorted(names)
