"""The page that explains one verdict: the picture, its place among held-out images, and what the numbers mean."""

import base64
import io
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from shiftprism.detector import Detector
    from shiftprism.verdicts import Verdict

_WIDE, _HIGH, _LEFT, _TOP, _RIGHT, _BOTTOM = 440, 390, 64, 14, 10, 56
_LARGEST = 480
_STYLE = """
.pictures { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-end; }
.pictures div { max-width: 100%; } .pictures img { display: block; max-width: 100%; max-height: 20rem; }
.pictures img.seen { image-rendering: pixelated; width: 12rem; } .pictures p { font-size: 0.9rem; margin: 0.3rem 0 0; }
.kind { font-weight: 600; } .kind.covariate, .kind.concept { color: var(--no); }
.kind.in-distribution { color: var(--yes); }
.plane text { fill: var(--ink); font: 13px system-ui, sans-serif; } .plane .soft { fill: var(--soft); }
.plane .held { fill: var(--soft); fill-opacity: 0.45; } .plane .axis { stroke: var(--soft); fill: none; }
.plane .cut { stroke: var(--no); stroke-dasharray: 5 4; } .plane .below { fill: var(--no); fill-opacity: 0.07; }
.plane .image { fill: var(--link); stroke: var(--paper); stroke-width: 2; } .plane .name { font-weight: 700; }
td.words { text-align: left; white-space: normal; }
"""


class Place(NamedTuple):
    """Where an image lies, and where the alarms of each axis begin."""

    style: float
    concept: float
    style_cut: float
    concept_cut: float


def make_page(detector: "Detector", name: str, original: "Tensor", seen: "Tensor", verdict: "Verdict") -> str:
    """The page; `original` is the uint8 image as it was read, `seen` what the model makes of it, both (C, H, W)."""
    from shiftprism.report import Section, page

    sections = [
        Section("What was decided", _pictures(original, seen) + _numbers(detector, verdict)),
        Section("Its place among held-out images", _plane(detector, verdict)),
        Section("What the p-values mean", _meaning(detector, verdict)),
    ]
    lead = f'<span class="kind {verdict.kind}">{verdict.kind}.</span> {escape(str(verdict))}'
    text = page(f"{name}: {verdict.kind}", lead, sections)
    return text.replace("</style>", f"{_STYLE}</style>", 1)


def _pictures(original: "Tensor", seen: "Tensor") -> str:
    shown = [
        f'<div><img class="seen" src="{_png(seen)}" alt="what the model sees"><p>As the model sees it, '
        f"{_sides(seen)} pixels.</p></div>"
    ]
    if original.shape[1:] != seen.shape[1:]:
        image = f'<img src="{_png(original)}" alt="the image">'
        shown.insert(0, f"<div>{image}<p>The image, {_sides(original)} pixels.</p></div>")
    return f'<div class="pictures">{"".join(shown)}</div>'


def _sides(image: "Tensor") -> str:
    return f"{image.shape[2]} × {image.shape[1]}"


def _png(image: "Tensor") -> str:
    """A data URL; a large picture is made smaller."""
    import torch
    from PIL import Image

    pixels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array[..., :3])
    picture.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _numbers(detector: "Detector", verdict: "Verdict") -> str:
    sure = "calibrated on held-out and shifted images" if verdict.calibrated else "the model's own, not calibrated"
    rows = [
        ("class", verdict.name, "what the model predicts, whether or not it should be trusted"),
        ("confidence", f"{100 * verdict.confidence:.1f} %", sure),
        ("kind", verdict.kind, f"at {100 * detector.false_alarm:g} % false alarms"),
        ("p of style", _p(verdict.p_covariate), "how many held-out images have a style at least as unusual"),
        ("p of concept", _p(verdict.p_concept), f"the same for the concept score, {detector.concept}"),
        ("p of both", _p(verdict.p_combined), "of both scores together: this one raises the alarm"),
    ]
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td><td class="words">{escape(words)}</td></tr>'
        for name, value, words in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Numbers"><table><tbody>{body}</tbody></table></div>'
    )


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.1e}"


def find_place(detector: "Detector", verdict: "Verdict") -> Place:
    """The scores of the image, and the largest scores of held-out images at which p is at most the level."""
    n = len(detector.held.style)
    rank = max(1, int(float(detector.decision.cut.max()) * (n + 1)))
    cuts = (float(values.sort().values[rank - 1]) for values in (detector.held.style, detector.held.concept))
    return Place(verdict.style, verdict.concept, *cuts)


def _plane(detector: "Detector", verdict: "Verdict") -> str:
    from shiftprism.report import figure

    points = detector.reference().points
    place = find_place(detector, verdict)
    text = (
        f"Each dot is one of {len(points)} images that the model was not trained on; the large one is this image. "
        "Across: style, lower = more unusual noise, blur, colour or light. Up: the concept score "
        f"{detector.concept}, lower = less like what the model knows. Left of the upright dashed line the style alone "
        "is rarer than the level; below the other line the concept score alone is. The alarm weighs both together."
    )
    return figure("Style and concept", text, _draw(points, place), False)


def _draw(points: "NDArray[np.float64]", place: Place) -> str:
    across = _Axis(points[:, 0], place.style_cut, _LEFT, _WIDE - _RIGHT)
    up = _Axis(points[:, 1], place.concept_cut, _HIGH - _BOTTOM, _TOP)
    x, y = across.at(place.style), up.at(place.concept)
    cut_x, cut_y = across.at(place.style_cut), up.at(place.concept_cut)
    dots = "".join(f'<circle class="held" cx="{across.at(a):.1f}" cy="{up.at(b):.1f}" r="2.6"/>' for a, b in points)
    left, right, top, bottom = _LEFT, _WIDE - _RIGHT, _TOP, _HIGH - _BOTTOM
    side, shift = ("end", -14) if x > (left + right) / 2 else ("start", 14)
    return (
        f'<svg class="plane" viewBox="0 0 {_WIDE} {_HIGH}" style="max-width:{_WIDE}pt" '
        'xmlns="http://www.w3.org/2000/svg">'
        f'<rect class="below" x="{left}" y="{top}" width="{cut_x - left:.1f}" height="{bottom - top}"/>'
        f'<rect class="below" x="{left}" y="{cut_y:.1f}" width="{right - left}" height="{bottom - cut_y:.1f}"/>'
        f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'
        f'<path class="cut" d="M{cut_x:.1f} {top}V{bottom}M{left} {cut_y:.1f}H{right}"/>{dots}'
        f'<circle class="image" cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
        f'<text class="name" x="{x + shift:.1f}" y="{min(max(y + 4, top + 12), bottom - 4):.1f}" text-anchor="{side}">'
        "this image</text>"
        f'<text x="{(left + right) / 2}" y="{_HIGH - 12}" text-anchor="middle">style →  usual</text>'
        f'<text class="soft" x="{left}" y="{_HIGH - 12}">← unusual</text>'
        f'<text transform="translate(22 {(top + bottom) / 2}) rotate(-90)" text-anchor="middle">concept →  known</text>'
        f'<text class="soft" transform="translate(22 {bottom}) rotate(-90)">← unknown</text>'
        f"{across.ticks(bottom + 18)}{up.ticks(left - 8, False)}</svg>"
    )


class _Axis:
    """Scores -> pixels. The scale is even among held-out images; beyond them it shrinks, so that all have room."""

    def __init__(self, values: "NDArray[np.float64]", cut: float, start: float, end: float) -> None:
        low, high = np.quantile(values, (0.005, 0.995))
        self.low = min(float(low), cut)
        self.spread = max(float(high) - self.low, 1e-9)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """The pixel of a score: 8 % of the axis is left at each end for what lies beyond, by a tanh."""
        share = (value - self.low) / self.spread
        if share < 0:
            share = 0.12 * float(np.tanh(share))
        elif share > 1:
            share = 1 + 0.12 * float(np.tanh(share - 1))
        return self.start + (self.end - self.start) * (0.14 + 0.72 * share)

    def ticks(self, place: float, across: bool = True) -> str:
        """Three numbers of the even part."""
        values = [self.low, self.low + self.spread / 2, self.low + self.spread]
        anchor = "middle" if across else "end"
        return "".join(
            f'<text class="soft" x="{self.at(value) if across else place:.1f}" '
            f'y="{place if across else self.at(value) + 4:.1f}" text-anchor="{anchor}">{value:.3g}</text>'
            for value in values
        )


def _meaning(detector: "Detector", verdict: "Verdict") -> str:
    n = len(detector.held.style)
    worse = round(verdict.p_combined * (n + 1)) - 1
    ranks = "of the same predicted class " if detector.by_class else ""
    texts = [
        f"{n} held-out images {ranks}stand behind the p-values; model, scores and calibrator have seen none of them. "
        f"A p-value counts those that are at least as unusual: (1 + their number) / ({n} + 1).",
        f"The alarm goes off where the p-value of both scores together is at most {detector.false_alarm:g}: so among "
        f"images like the held-out ones at most {100 * detector.false_alarm:g} % are flagged, whatever the model.",
        "A flagged image is called covariate where the p-value of its style is that small, too; otherwise concept.",
        "A large p-value proves nothing: some shifted images look like those that the model knows.",
    ]
    if not detector.by_class:
        texts[0] += f" For this image that are {worse} of {n}."
    if detector.confidence is not None:
        texts[1] += f" For this very detector that holds with a probability of {100 * detector.confidence:g} %."
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
