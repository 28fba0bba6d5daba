"""The frozen list of public names (docs/deprecation.md), and that each is there."""

import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FROZEN = {
    room: names.split()
    for room, _, names in (
        line.partition(": ") for line in (ROOT / "tests/public_names.txt").read_text(encoding="utf-8").splitlines()
    )
}


def test_public_names_are_the_frozen_ones() -> None:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "tools/build_site.py")
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    now = {room: sorted(names) for room, names in site.list_rooms().items()}
    frozen = {room: names for room, names in FROZEN.items() if room != "shiftprism"}
    changes = [
        f"{sign} {room}.{name}"
        for sign, first, second in (("+", now, frozen), ("-", frozen, now))
        for room in first
        for name in sorted(set(first[room]) - set(second.get(room, [])))
    ]
    assert changes == [], "docs/deprecation.md has the policy; then run: python tools/build_site.py --names"


@pytest.mark.parametrize("room", FROZEN)
def test_every_public_name_is_there(room: str) -> None:
    module = importlib.import_module("shiftprism" if room == "shiftprism" else f"shiftprism.{room}")
    assert [name for name in FROZEN[room] if not hasattr(module, name)] == []
