"""Optional dependencies: imported where they are used, named with their pip line where they are missing."""

from importlib import import_module
from typing import Any


def need(module: str, extra: str) -> Any:
    """The imported `module`, or an ImportError that says which extra brings it.

    >>> need("math", "cluster").sqrt(4)
    2.0
    >>> need("no_such_module", "cluster")
    Traceback (most recent call last):
    ...
    ImportError: `no_such_module` is not installed; run: pip install "shiftprism[cluster]"
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'`{module}` is not installed; run: pip install "shiftprism[{extra}]"') from error
