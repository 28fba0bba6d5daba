"""A name as a reader writes it, and as a file may have it."""

import re


def display_name(name: str) -> str:
    """A name as a reader writes it.

    >>> display_name("motion_blur")
    'motion blur'
    """
    return name.replace("_", " ")


def file_stem(*names: str) -> str:
    """Names joined to one that a file or folder may have.

    >>> file_stem("my data", "unseen digits")
    'my-data-unseen-digits'
    """
    return re.sub(r"[^\w.-]", "-", "-".join(names))
