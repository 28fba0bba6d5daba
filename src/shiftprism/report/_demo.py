"""The page of `shiftprism demo`: a small study in the same dress as a benchmark."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from shiftprism import plots
from shiftprism._files import write_text
from shiftprism.benchmark import Evidence, Row
from shiftprism.report._page import Section, figure, page, table
from shiftprism.report._publish import source
from shiftprism.report._tables import calibration_table, detection_table, in_short


def each_shift(rows: Sequence[Row], ladders: Sequence[str] = ()) -> list[Row]:
    """The rows of detection that a short table has room for.

    Of a few corruptions each has its own column, and all of them together none; of many (`ladders` names those that are
    drawn) it is the other way round.
    """
    detected = [row for row in rows if row.metric == "auroc"]
    if not ladders:
        return [row for row in detected if row.shift != "corrupted"]
    return [row for row in detected if row.kind != "covariate" or row.shift == "corrupted"]


def write_page(
    path: str | Path,
    title: str,
    lead: str,
    rows: Sequence[Row],
    evidence: Sequence[Evidence],
    ladders: Sequence[str] = (),
) -> None:
    """One HTML file with tables and figures inline, from rows and evidence at hand; `lead` is HTML.

    Of many corruptions `ladders` names the few that are drawn one by one.
    """
    shown = [one for one in evidence if one.seed == evidence[0].seed]
    seed = f"One model of each kind, seed {evidence[0].seed}."
    detected = each_shift(rows, ladders)
    there = dict.fromkeys(row.shift for row in rows if row.kind == "covariate" and row.severity)
    ladders = list(ladders or there)
    few = [_with(one, ladders) for one in shown]
    short = "".join(f"<li>{escape(sentence)}</li>" for sentence in in_short(detected))
    sections = [
        Section("In short", f"<ul>{short}</ul>"),
        Section("Does it detect?", table(detection_table(detected), heading=False)),
        _figure(
            "How does it grow with severity?",
            "A good score rises with the severity of a corruption. Below the dotted line a score takes shifted images "
            "for more in-distribution than clean ones: the shift raised it. Bands are one deviation over seeds.",
            plots.svg(plots.severity_curves(rows, ladders), "severity"),
        ),
        _figure(
            "Which shift is it?",
            "Each dot is an image, placed by its rank among the clean images; large marks are medians, with the middle "
            "half of the images along the bars. Style shift should move images left (small g), an unseen concept down "
            f"(small h). {seed} Corruptions at their severest.",
            plots.svg(plots.shift_plane(few), "plane"),
        ),
        _figure(
            "How are the scores spread?",
            f"Higher is more in-distribution, for every score. {seed}",
            plots.svg(plots.score_histograms(few), "histograms"),
        ),
        Section("Can the confidence be trusted?", table(calibration_table(rows), heading=False)),
        _figure(
            "Is a confidence of 80 % right 80 % of the time?",
            "On the dotted line it is; below it the model is over-confident. Bars are 95 % intervals; the steps at the "
            f"foot count the images. {seed}",
            plots.svg(plots.reliability_diagrams(shown), "reliability"),
        ),
        Section("How was this made?", source(rows)),
    ]
    write_text(Path(path), page(title, lead, sections))


def _with(one: Evidence, ladders: Sequence[str]) -> Evidence:
    """The evidence without the corruptions that are not drawn."""
    return one._replace(shifted=[it for it in one.shifted if it[0].kind != "covariate" or it[0].name in ladders])


def _figure(title: str, text: str, drawing: str) -> Section:
    return Section(title, figure(title, text, drawing, heading=False))
