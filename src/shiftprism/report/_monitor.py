"""The page of a monitor: what the stream shows now, and how it looked over time."""

import base64
import io
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from shiftprism.monitor import Episode, Monitor, Status
from shiftprism.report import _page as html
from shiftprism.report._table import Cell, Table

_WIDTH, _HEIGHT = 440.0, 170.0  # narrow enough for a phone: the change is often at the right end
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 12.0, 30.0
_COLOURS = {"covariate": "#d55e00", "concept": "#0072b2", "accuracy": "#009e73"}
"""Readable on white and on black, and told apart without red and green."""
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm")
_EXAMPLES = 8
_CELL_PIXELS = 96

Point = tuple[float, float]


def make_monitor_page(monitor: Monitor, images: Path | None = None) -> str:
    """One HTML page; `images` is the folder that was watched, for examples from after the change."""
    status = monitor.status()
    before = [Episode(**one) for reset in monitor.resets for one in reset["episodes"]]
    episodes = (*before, *status.episodes)
    sections = [
        html.Section("What does it show now?", _table_of_status(monitor, status)),
        html.Section("When did it change?", _draw_evidence(monitor, status, episodes) + _list_episodes(episodes)),
        html.Section("What was flagged?", _draw_flagged(monitor, status, episodes) + _show_examples(status, images)),
        html.Section("How accurate is the model?", _draw_accuracy(monitor, status, episodes)),
        html.Section("What is promised?", _describe_promise(monitor)),
    ]
    return html.page("ShiftPrism: a stream of images", f"<b>{escape(str(status))}</b>", sections)


def _table_of_status(monitor: Monitor, status: Status) -> str:
    rows = [
        ("level", status.level),
        ("kind of shift", status.kind or "none"),
        ("began about observation", "–" if status.since is None else f"{status.since:,}"),
        ("alarm at observation", "–" if status.alarm_at is None else f"{status.alarm_at:,}"),
        ("still lasts", "yes" if status.active else "no"),
        ("trust the predictions", "as usual" if status.trust else "no"),
        ("observations", f"{status.observations:,}"),
        ("flagged of the last 512", _percent(status.flagged)),
        ("usually flagged", _percent(status.usual_flagged)),
        ("resets by an operator", f"{status.resets}"),
    ]
    body = [[Cell(name), Cell(value)] for name, value in rows]
    note = f"Detector {monitor.reference.detector[:12]}. Observations are numbered from 0."
    return html.table(Table("The stream now", note, ["", "value"], body, 1, 0), heading=False)


def _draw_evidence(monitor: Monitor, status: Status, episodes: Sequence[Episode]) -> str:
    """The highest e-value of each window, on a logarithmic axis."""
    heights = monitor.evidence_history()
    firsts = [one.first + one.images for one in monitor.history()]
    top = max(math.log10(status.threshold) * 1.25, 1.0)
    # far above the threshold nothing is to be read; wealth of 10^300 would flatten the rest
    cap = 2 * top
    curves = {}
    for name, row in zip(("covariate", "concept"), heights.tolist(), strict=True):
        points = zip(firsts, row, strict=True)
        curves[name] = [(float(x), min(y * math.log10(2), cap)) for x, y in points if math.isfinite(y)]
    highest = max([y for points in curves.values() for _, y in points], default=0.0)
    frame = _Frame(float(max(status.observations, 1)), -1.0, max(top, min(highest, cap)))
    level = math.log10(status.threshold)
    ticks = [(float(power), f"10{_superscript(power)}") for power in range(-1, math.floor(frame.high) + 1)]
    parts = [frame.axes(ticks), frame.level(level, "alarm"), frame.marks(episodes)]
    parts += [frame.line(points, _COLOURS[name]) for name, points in curves.items()]
    text = (
        "The highest evidence in each window, as an e-value, for covariate and for concept shift. It is a fair bet "
        "against the stream being as usual: the alarm is raised where it reaches the dashed line. Vertical lines: the "
        "estimated beginning of each change."
    )
    return html.figure("Evidence over time", text, frame.svg(parts)) + _legend("covariate", "concept")


def _draw_flagged(monitor: Monitor, status: Status, episodes: Sequence[Episode]) -> str:
    history = monitor.history()
    frame = _Frame(float(max(status.observations, 1)), 0.0, 1.0)
    parts = [frame.axes(_SHARES), frame.level(status.usual_flagged, "usual"), frame.marks(episodes)]
    middles = [one.first + one.images / 2 for one in history]
    for name in ("covariate", "concept"):
        points = [(x, getattr(one, name)) for x, one in zip(middles, history, strict=True)]
        parts.append(frame.line(points, _COLOURS[name]))
    size = f"{monitor.windows.size:,}"
    text = f"The share of images in each window of {size} that the detector flags as covariate or as concept shift."
    return html.figure("Flagged images over time", text, frame.svg(parts)) + _legend("covariate", "concept")


def _draw_accuracy(monitor: Monitor, status: Status, episodes: Sequence[Episode]) -> str:
    if not status.calibrated:
        return "<p>The detector has no calibrator, so its confidences do not estimate an accuracy.</p>"
    history = monitor.history()
    frame = _Frame(float(max(status.observations, 1)), 0.0, 1.0)
    middles = [one.first + one.images / 2 for one in history]
    band = [(x, one.low) for x, one in zip(middles, history, strict=True)]
    band += [(x, one.high) for x, one in reversed(list(zip(middles, history, strict=True)))]
    points = [(x, one.value) for x, one in zip(middles, history, strict=True)]
    parts = [frame.axes(_SHARES), frame.level(monitor.reference.confidence, "held-out"), frame.marks(episodes)]
    parts += [frame.area(band, _COLOURS["accuracy"]), frame.line(points, _COLOURS["accuracy"])]
    text = (
        "The mean calibrated confidence of each window, an estimate without labels, and 1.96 standard errors: the true "
        "accuracy of a window is in the band where the confidences are right. They are not for unknown classes."
    )
    figure = html.figure("Estimated accuracy over time", text, frame.svg(parts))
    warning = "" if status.trust else "<p><b>Do not trust this estimate:</b> the stream shows concept shift.</p>"
    audited = monitor.audits.accuracy()
    if audited is None:
        return warning + figure
    sentence = (
        f"<p>From {audited.labelled} labelled observations, drawn at random from {audited.first:,} to "
        f"{audited.after - 1:,}: {audited.value:.3f} ({audited.low:.3f}–{audited.high:.3f}).</p>"
    )
    return warning + figure + sentence


def _list_episodes(episodes: Sequence[Episode]) -> str:
    if not episodes:
        return "<p>No change was found.</p>"
    body = [
        [
            Cell(one.kind),
            Cell(f"{one.since:,}", mean=one.since),
            Cell(f"{one.alarm_at:,}", mean=one.alarm_at),
            Cell("–" if one.ended is None else f"{one.ended:,}"),
        ]
        for one in episodes
    ]
    return html.table(
        Table(
            "Changes",
            "By observation number, those before a reset as well.",
            ["kind", "since about", "alarm", "ended by"],
            body,
            1,
            0,
        )
    )


def _describe_promise(monitor: Monitor) -> str:
    settings = monitor.settings
    if settings.run_length is None:
        promise = f"the chance of ever raising an alarm, on either axis, is at most {_percent(settings.false_alarm)}"
    else:
        promise = f"at least {settings.run_length:,} observations pass, on average, before an alarm"
    ranks = "within the predicted class" if settings.within_class else "among all classes"
    tested = "every observation" if settings.every == 1 else f"one of {settings.every} observations"
    resets = "".join(
        f"<li>Observation {one['observation']:,} ({escape(one['level'])}): {escape(one['reason'])}</li>"
        for one in monitor.resets
    )
    listed = f"<p>Resets by an operator, each of which began a new promise:</p><ul>{resets}</ul>" if resets else ""
    return (
        f"<p>On an endless stream that is exchangeable with the held-out images, {promise}. Scores are ranked {ranks}, "
        f"and {tested} is tested. Streams whose images depend on one another, such as neighbouring frames, are not "
        f"exchangeable, and the promise does not hold for them.</p>{listed}"
    )


def _show_examples(status: Status, images: Path | None) -> str:
    """The first images after the last change; the files of the folder are observations in order of time and name."""
    if images is None or status.since is None:
        return ""
    files = [file for file in images.iterdir() if file.suffix.lower() in _ENDINGS and file.is_file()]
    ordered = [file for _, _, file in sorted((file.stat().st_mtime_ns, file.name, file) for file in files)]
    if len(ordered) != status.observations:
        return "<p>The folder does not have the images of the stream and no others, so none are shown.</p>"
    shown = "".join(map(_embed, ordered[status.since : status.since + _EXAMPLES]))
    return f"<h3>The first images after the change</h3>\n<p>{shown}</p>"


def _embed(file: Path) -> str:
    from PIL import Image

    with Image.open(file) as image:
        small = image.convert("RGB")
        small.thumbnail((_CELL_PIXELS, _CELL_PIXELS))
        stream = io.BytesIO()
        small.save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img alt="{escape(file.name)}" width="{_CELL_PIXELS}" src="data:image/png;base64,{data}"> '


def _legend(*names: str) -> str:
    items = " ".join(
        f'<span><span aria-hidden="true" style="color:{_COLOURS[name]}">━</span> {name} shift</span>' for name in names
    )
    return f"<p>{items}</p>\n"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


_SHARES = [(share / 4, f"{25 * share} %") for share in range(5)]


class _Frame:
    """The axes of a small chart: observations to the right, from `low` to `high` upwards."""

    def __init__(self, last: float, low: float, high: float) -> None:
        self.last, self.low, self.high = last, low, high

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(value / self.last, 1.0)

    def y(self, value: float) -> float:
        inside = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * inside

    def axes(self, ticks: Sequence[tuple[float, str]]) -> str:
        parts = []
        for value, text in ticks:
            at = self.y(value)
            parts.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="currentColor" '
                f'stroke-opacity=".15"/><text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
            )
        for value in _round_steps(self.last):
            parts.append(f'<text x="{self.x(value):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{value:,.0f}</text>')
        return "".join(parts)

    def level(self, value: float, text: str) -> str:
        at = self.y(value)
        return (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="currentColor" '
            f'stroke-dasharray="5 4"/><text x="{_LEFT + 4}" y="{at - 4:.1f}">{escape(text)}</text>'
        )

    def marks(self, episodes: Sequence[Episode]) -> str:
        return "".join(
            f'<line x1="{self.x(one.since):.1f}" x2="{self.x(one.since):.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
            f'stroke="{_COLOURS[one.kind]}" stroke-width="1.5" stroke-dasharray="2 3"/>'
            for one in episodes
        )

    def line(self, points: Sequence[Point], colour: str) -> str:
        if len(points) == 1:
            ((x, y),) = points
            return f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{colour}"/>'
        return f'<polyline points="{self._join(points)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'

    def area(self, points: Sequence[Point], colour: str) -> str:
        return f'<polygon points="{self._join(points)}" fill="{colour}" fill-opacity=".25"/>'

    def svg(self, parts: Sequence[str]) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" font-size="11" '
            f'font-family="system-ui, sans-serif" fill="currentColor" style="max-width:{_WIDTH:.0f}pt">'
            f"{''.join(parts)}</svg>"
        )

    def _join(self, points: Sequence[Point]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)


def _round_steps(last: float) -> list[float]:
    """Four to eight round numbers up to `last`, without 0."""
    step = 10.0 ** math.floor(math.log10(max(last, 1.0)))
    while last / step < 4:
        step /= 2 if step > 1 else 1
        if step <= 1:
            break
    return [step * number for number in range(1, math.floor(last / step) + 1)]
