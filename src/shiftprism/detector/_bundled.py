"""Detectors that come with the package, by name."""

from pathlib import Path

BUNDLED = ("cifar10",)
"""cifar10: a small network for the ten classes of CIFAR-10, stored in half precision. See docs/detector.md."""


def find_bundled(name: "str | Path") -> Path | None:
    """The folder of a detector that comes with the package; None for any other name.

    >>> find_bundled("nosuch") is None
    True
    """
    return Path(__file__).with_name(str(name)) if str(name) in BUNDLED else None
