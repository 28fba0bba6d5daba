"""A user's own code by its name, `module:Name`: imported where the user asks for it, and from no file."""

import importlib
import sys
from pathlib import Path
from typing import Any

from shiftprism._errors import wrong


def import_named(argument: str, name: str) -> Any:
    """What `name`, "package.module:Name", stands for. The module lies in the current folder or is installed.

    Whatever goes wrong is one error that names the `argument` it was given for.

    >>> import_named("score", "math:sqrt")(4)
    2.0
    """
    module, colon, attribute = name.partition(":")
    folder = str(Path.cwd())
    # the current folder comes first while the module is imported, as in `python -m`, and last for its later imports
    sys.path.insert(0, folder)
    try:
        if not colon or not module or not attribute:
            raise ValueError("no module and name with a colon between them")
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except Exception as error:  # the module is a user's program: it may raise anything
        got = f"{name} ({type(error).__name__}: {' '.join(str(error).split())})"
        advice = f"name a module in {folder} or an installed one, and a function or class in it"
        raise wrong(argument, "module:Name", got, advice) from error
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
