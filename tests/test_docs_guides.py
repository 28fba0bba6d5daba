"""The guides, followed word for word: every `sh` block and every Python block runs, and prints what the page shows.

Blocks of other languages are not run: `console` is for what needs a GPU, a download or Docker. A Python block with a
title is a file. Numbers may differ from the page, since machines do, and with them what is bold; words may not.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-−+]?\d[\d,.]*(?:e[-+]?\d+)?|\b(?:one|none)\b")


def words_of(text: str) -> set[str]:
    """The lines of a text without numbers, bold marks and runs of spaces."""
    return {" ".join(NUMBER.sub("#", line).replace("**", "").split()) for line in text.splitlines() if line.strip()}


def missing_lines(shown: str, printed: str) -> list[str]:
    there = words_of(printed)
    return [line for line in sorted(words_of(shown)) if not any(line in one for one in there)]


def test_words_are_compared_and_numbers_are_not() -> None:
    printed = "12 images: 3 flagged\nWritten: /tmp/x\n"
    assert missing_lines("9 images:  1 flagged\n", printed) == []
    assert missing_lines("9 images: 1 noted\n", printed) == ["# images: # noted"]
    assert missing_lines("| u | 91.7 |\n", "| u | **91.8** |\n") == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_guide_has_output_for_what_it_runs(guide: Path) -> None:
    kinds = [kind for kind, _, _ in BLOCK.findall(guide.read_text(encoding="utf-8"))]
    assert set(kinds) <= {"sh", "console", "python", "text"}
    if guide.stem != "index":
        assert "sh" in kinds
        assert "text" in kinds


@pytest.mark.slow
@pytest.mark.parametrize("guide", [path for path in GUIDES if path.stem != "index"], ids=lambda path: path.stem)
def test_a_guide_can_be_followed(guide: Path, tmp_path: Path) -> None:
    place, commands = tmp_path / "clone", tmp_path / "bin"
    place.mkdir()
    commands.mkdir()
    (place / "examples").symlink_to(ROOT / "examples")
    for name, rest in {"shiftprism": "-m shiftprism", "python": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {rest} "$@"\n')
        (commands / name).chmod(0o755)
    home = {"PATH": f"{commands}:{os.environ['PATH']}", "HOME": str(tmp_path), "COLUMNS": "100"}
    printed = ""
    for kind, title, text in BLOCK.findall(guide.read_text(encoding="utf-8")):
        if kind == "text":
            assert missing_lines(text, printed) == [], printed
        elif title:
            (place / title).write_text(text, encoding="utf-8")
        elif kind in ("sh", "python"):
            program = ["bash"] if kind == "sh" else [sys.executable, "-"]
            done = subprocess.run(
                program, input=text, cwd=place, env=os.environ | home, capture_output=True, text=True, check=False
            )
            assert done.returncode in (0, 3), done.stdout + done.stderr
            assert "Traceback" not in done.stderr
            assert "shiftprism:" not in done.stderr, done.stderr
            printed = done.stdout + done.stderr
