"""The picture of README.md: digits with the verdict under each, as `shiftprism demo` draws them.

Run with: .venv/bin/python tools/verdict_picture.py [docs/pictures/digits-verdicts.png]
"""

import sys
from pathlib import Path

from shiftprism.cli import _digits_story

PICTURE = Path(__file__).parents[1] / "docs/pictures/digits-verdicts.png"


def main() -> None:
    path = Path(sys.argv[1]) if sys.argv[1:] else PICTURE
    story = _digits_story.make_story("cpu", lambda text, share: None)
    _digits_story.write_picture(story, path)
    for name, images, *counts in _digits_story.count_kinds(story):
        print(f"| {name} | {images} | " + " | ".join(f"{count / images:.1%}" for count in counts) + " |")
    for name, shown in story.sets.items():
        for number in _digits_story.pick(shown):
            print(f"A {shown.labels[number]}, {name}: {shown.verdicts[number]}")


if __name__ == "__main__":
    main()
