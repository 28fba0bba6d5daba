"""What a detector says of digits that are clean, blurred, noisy and never seen: the picture, the counts, the page."""

import base64
import io
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from torch import Tensor

    from shiftprism.detector import Detector
    from shiftprism.verdicts import Verdict, Verdicts

UNSEEN = ("8", "9")
SETS = ("clean", "blurred", "noisy", "never seen")
_SHARE_HELD_OUT = 0.5
_CONFIDENCE = 0.95
"""The demo shows a single detector, so its level is promised for this one and not on average."""
_SHOWN = 8
_CELL, _GAP, _MARGIN, _LEFT, _TEXT = 88, 10, 16, 108, 13
_INK, _PALE, _PAPER, _RIGHT, _WRONG = (28, 33, 38), (84, 94, 104), (255, 255, 255), (0, 104, 74), (163, 59, 0)


class Shown(NamedTuple):
    """Images of one kind, and what was decided about them."""

    images: "Tensor"
    """uint8 (N, 1, 8, 8)."""
    labels: "tuple[str, ...]"
    """What each shows."""
    verdicts: "Verdicts"


class Story(NamedTuple):
    """A detector of the digits 0 to 7, and its verdicts on four sets."""

    detector: "Detector"
    held_out: int
    """The number of digits that it was fitted to."""
    sets: dict[str, Shown]


def make_story(device: str, progress: "Callable[[str, float], None]") -> Story:
    """Train on digits 0 to 7, fit a detector to those held out, and judge the test images and shifted copies of them.

    `progress` is called with what is done and its share of the whole.
    """
    from shiftprism._devices import move
    from shiftprism.classifier import Classifier
    from shiftprism.corruptions import corrupt
    from shiftprism.datasets import load
    from shiftprism.detector import Detector
    from shiftprism.shifts import hold_out
    from shiftprism.training import PRESETS, channel_statistics, train

    known = hold_out(load("digits", "train"), UNSEEN)[0]
    learned, held = known.hold_out(_SHARE_HELD_OUT)
    test, unseen = hold_out(load("digits", "test"), UNSEEN)
    progress("training", 0.0)
    statistics = channel_statistics(learned.images)
    classifier = Classifier.build("digits", "alpha-beta", learned.names, 1, *statistics, seed=0)
    train(move(classifier, device), learned, PRESETS["smoke"])
    progress("fitting", 0.4)
    detector = Detector.fit(
        classifier,
        held.images,
        held.labels,
        confidence=_CONFIDENCE,
        progress=lambda done, total: progress("fitting", 0.4 + 0.4 * done / total),
    )
    images = {
        "clean": test.images,
        "blurred": corrupt(test.images, "motion_blur", 3),
        "noisy": corrupt(test.images, "gaussian_noise", 3),
        "never seen": unseen.images,
    }
    sets = {}
    for name, part in images.items():
        source = unseen if name == "never seen" else test
        labels = tuple(source.names[label] for label in source.labels.tolist())
        sets[name] = Shown(part, labels, detector(part))
    progress("fitting", 1.0)
    return Story(detector, len(held.images), sets)


def count_kinds(story: Story) -> list[tuple[str, int, int, int, int]]:
    """For each set: its name, the number of images, and how many were flagged, called covariate and called concept."""
    rows = []
    for name, shown in story.sets.items():
        counts = shown.verdicts.counts()
        flagged = counts["covariate"] + counts["concept"]
        rows.append((name, len(shown.images), flagged, counts["covariate"], counts["concept"]))
    return rows


def pick(shown: Shown) -> list[int]:
    """The images in the picture: every n-th, so that nobody chose them."""
    return [number * len(shown.images) // _SHOWN for number in range(_SHOWN)]


def draw(story: Story) -> Image.Image:
    """A contact sheet: a row for each set, and under each image the verdict, green where it is right."""
    font, bold = ImageFont.load_default(_TEXT), ImageFont.load_default(_TEXT + 2)
    step = (_CELL + _GAP, _CELL + 2 * _TEXT + 3 * _GAP)
    size = (_LEFT + _SHOWN * step[0] + _MARGIN, 2 * _MARGIN + len(SETS) * step[1])
    sheet = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(sheet)
    for row, (name, shown) in enumerate(story.sets.items()):
        top = _MARGIN + row * step[1]
        pen.text((_MARGIN, top), name, _INK, bold)
        flagged = int((shown.verdicts.kind != "in-distribution").sum())
        pen.multiline_text((_MARGIN, top + 24), f"{flagged} of {len(shown.images)}\nflagged", _PALE, font)
        for column, number in enumerate(pick(shown)):
            left = _LEFT + column * step[0]
            pixels = shown.images[number, 0].numpy()
            sheet.paste(Image.fromarray(pixels).resize((_CELL, _CELL), Image.Resampling.NEAREST), (left, top))
            verdict = shown.verdicts[number]
            words, colour = _judge(name, verdict)
            pen.text((left, top + _CELL + 4), words, colour, font)
            sure = f"says {verdict.name}, {verdict.confidence:.0%}"
            pen.text((left, top + _CELL + 6 + _TEXT), sure, _PALE, font)
    return sheet


def _judge(name: str, verdict: "Verdict") -> tuple[str, tuple[int, int, int]]:
    """The verdict in a word or two, and its colour: orange for a false alarm and for a miss."""
    flagged = verdict.kind != "in-distribution"
    if flagged == (name != "clean"):
        return {"in-distribution": "in distribution"}.get(verdict.kind, verdict.kind), _RIGHT
    return ("false alarm" if flagged else "missed"), _WRONG


def write_picture(story: Story, path: Path) -> None:
    """Write the sheet to a PNG file, which appears only when it is complete."""
    from shiftprism._files import replacing

    with replacing(path) as beside:
        draw(story).quantize(64).save(beside, "PNG", optimize=True)


def make_page(story: Story) -> str:
    """The page: the picture, the counts, and every verdict of the picture in words."""
    from shiftprism.report import Section, page

    file = io.BytesIO()
    draw(story).save(file, "PNG", optimize=True)
    picture = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    level = f"{100 * story.detector.false_alarm:g} %"
    n = len(story.detector.held.style)
    sheet = (
        "<p>Every n-th image of each set: nobody chose them. Green: the decision is right. Orange: a false alarm, "
        f'or a shift that was missed.</p><div class="wide" tabindex="0" role="region" aria-label="The picture">'
        f'<img src="{picture}" alt="Digits with the verdict under each"></div>'
    )
    counts = (
        f"<p>At most {level} of all clean digits are flagged: with a confidence of {100 * _CONFIDENCE:g} %, {n} "
        f"held-out digits that nothing else has seen promise it. The other sets should be flagged.</p>{_table(story)}"
    )
    words = "".join(
        f"<h3>{escape(name)}</h3><ul>{''.join(_item(shown, number) for number in pick(shown))}</ul>"
        for name, shown in story.sets.items()
    )
    lead = (
        f"A small network was trained on the digits 0 to 7. A detector was fitted to {story.held_out} held-out digits. "
        "It judges digits that it should know, the same ones blurred and noisy, and the digits 8 and 9, which it never "
        "saw."
    )
    sections = [Section("Caught and missed", sheet), Section("Counts", counts), Section("In words", words)]
    return page("A decision for each digit", lead, sections)


def name_digit(label: str) -> str:
    """The digit with its article.

    >>> name_digit("7"), name_digit("8")
    ('A 7', 'An 8')
    """
    return f"{'An' if label == '8' else 'A'} {label}"


def _item(shown: Shown, number: int) -> str:
    return f"<li>{escape(name_digit(shown.labels[number]))}: {escape(str(shown.verdicts[number]))}</li>"


def _table(story: Story) -> str:
    head = "".join(
        f'<th scope="col" class="{"name" if not number else "number"}">{name}</th>'
        for number, name in enumerate(("", "images", "flagged", "covariate", "concept"))
    )
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{images}</td>'
        + "".join(f"<td>{count / images:.1%}</td>".replace("%", " %") for count in counts)
        + "</tr>"
        for name, images, *counts in count_kinds(story)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
