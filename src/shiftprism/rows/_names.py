"""A name as a reader writes it, and as a file may have it."""

import re


def display_name(name: str) -> str:
    """A name as a reader writes it.

    >>> display_name("motion_blur")
    'motion blur'
    """
    return name.replace("_", " ")


def is_own_score(subject: str) -> bool:
    """Whether a subject is a user's own score, which is named `module:Name`.

    >>> is_own_score("mine:Ratio"), is_own_score("energy")
    (True, False)
    """
    return ":" in subject


def file_stem(*names: str) -> str:
    """Names joined to one that a file or folder may have.

    >>> file_stem("my data", "unseen digits")
    'my-data-unseen-digits'
    """
    return re.sub(r"[^\w.-]", "-", "-".join(names))
