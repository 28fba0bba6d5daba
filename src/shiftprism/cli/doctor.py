"""`shiftprism doctor`: what is installed here, and what is missing for what."""

import importlib
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

import typer

from shiftprism import __version__

_MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}
_DEVELOPMENT = ("dev", "docs")


def doctor() -> None:
    """Show versions, extras, devices and data, and what to do about what is missing.

    The exit code is 1 where a package that ShiftPrism cannot do without is missing or does not load.
    """
    _print(f"shiftprism {__version__} in {Path(__file__).resolve().parents[1]}")
    _print(f"Python {platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}")
    core, extras = _list_requirements()
    broken = _show_core(core)
    _show_extras(extras)
    _show_devices("torch" in broken)
    _show_data(bool(broken))
    if broken:
        _print(f"\nNot well: {', '.join(broken)}. Run: pip install --force-reinstall {' '.join(broken)}")
        raise typer.Exit(1)
    _print("\nAll is well.")


def _list_requirements() -> tuple[list[str], dict[str, list[str]]]:
    """The packages that the installed ShiftPrism asks for: always, and for each extra."""
    core, extras = list[str](), dict[str, list[str]]()
    for line in metadata.requires("shiftprism") or ():
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra\s*==\s*["']([\w-]+)["']""", line)
        old = re.search(r"""python_version\s*<\s*["']3\.(\d+)["']""", line)
        if name is None or (old and sys.version_info >= (3, int(old[1]))):
            continue
        if extra is None:
            core.append(name[0])
        elif extra[1] not in _DEVELOPMENT and name[0] != "shiftprism":
            extras.setdefault(extra[1], []).append(name[0])
    return core, extras


def _version(package: str) -> str:
    """The installed version, or "" where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _show_core(packages: list[str]) -> list[str]:
    """Load each package, since a version may be there and its libraries not. Returns the broken ones."""
    _print("\nPackages")
    broken = []
    for package in packages:
        try:
            importlib.import_module(_MODULES.get(package, package))
            problem = ""
        except Exception as error:  # a broken library raises anything, OSError and RuntimeError included
            problem = f"does not load: {' '.join(str(error).split())[:200]}" if _version(package) else "is missing"
            broken.append(package)
        _print(f"  {package:14} {_version(package) or '-':14} {problem}".rstrip())
    return broken


def _show_extras(extras: dict[str, list[str]]) -> None:
    _print("\nExtras")
    for extra, packages in extras.items():
        missing = [package for package in packages if not _version(package)]
        there = ", ".join(f"{package} {_version(package)}" for package in packages if package not in missing)
        advice = f'missing {", ".join(missing)}: pip install "shiftprism[{extra}]"' if missing else there
        _print(f"  {extra:14} {advice}")


def _show_devices(without_torch: bool) -> None:
    from shiftprism._devices import count_cores

    _print("\nDevices")
    _print(f"  {'cpu':14} {count_cores()} of {os.cpu_count()} cores")
    if without_torch:
        _print("  torch does not load, so others cannot be seen")
        return
    import torch

    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        _print(f"  {f'cuda:{number}':14} {torch.cuda.get_device_name(number)}")
    if torch.backends.mps.is_available():
        _print(f"  {'mps':14} Metal")
    if not torch.cuda.is_available():
        _print(f"  {'cuda':14} none that torch {torch.__version__} sees")


def _show_data(broken: bool) -> None:
    _print("\nData")
    if broken:
        _print("  not looked for, because a package is broken")
        return
    from shiftprism.datasets import DATASETS, find, search_folders

    for name, entry in DATASETS.items():
        there = [split for split in entry.splits if find(name, split)]
        advice = "with scikit-learn" if not entry.downloads else f"not found: shiftprism data get {name}"
        _print(f"  {name:14} {', '.join(there) if there and entry.downloads else advice}")
    _print(f"  looked in {', '.join(str(folder.absolute()) for folder in search_folders())}")


def _print(text: str) -> None:
    typer.echo(text)
