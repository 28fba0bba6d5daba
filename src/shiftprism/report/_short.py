"""What a README has room for: two short tables, where U of α-β stands, and how many claims hold."""

from collections import Counter
from collections.abc import Sequence

from shiftprism.benchmark import Results
from shiftprism.benchmark._bootstrap import Measured
from shiftprism.claims import PAPER, Finding
from shiftprism.report._paper_tables import (
    OURS,
    Pair,
    calibration,
    corruptions_not_chosen_on,
    detection,
    ranked,
    whole_sets,
)
from shiftprism.report._table import Cell, Table

_BESIDE: set[Pair] = {
    *(("vanilla", score) for score in ("u", "knn", "prism")),
    *(("alpha-beta", score) for score in ("g", "h", "u", "prism")),
    *(("gsd", "u"), ("alpha", "u"), ("beta", "u")),
}
"""What the short table has beside the paper's own pairs."""
_CALIBRATED = {
    *((model, calibrator) for model in ("vanilla", "alpha-beta") for calibrator in ("none", "temperature")),
    *((model, "alpha-beta") for model in ("vanilla", "alpha-beta")),
    *(("gsd", "exponential-map"), ("ensemble", "none"), ("sngp", "none"), ("duq", "none")),
}


def short_tables(results: Results) -> dict[str, Table]:
    """The short detection and calibration table of each ID data set, by a name fit for a file."""
    made: dict[str, Table | None] = {}
    for measured in Measured.split(results):
        if measured.protocol == "paper":  # somebody else's network beside ours would be no comparison
            continue
        made[f"{measured.data}-short-detection"] = _detection(measured)
        made[f"{measured.data}-short-calibration"] = _calibration(measured)
    return {name: table for name, table in made.items() if table is not None}


def _detection(measured: Measured) -> Table | None:
    """The paper's pairs, ours, and whichever of all pairs is the best: a table without it would hide who won."""
    order = ranked(measured, whole_sets(measured))
    best = {order[0][0]} if order else set[Pair]()
    theirs = {(one.model, one.subject) for one in PAPER if one.table == 1}
    table = detection(measured, only=theirs | _BESIDE | best)
    if table is None:
        return None
    short = _ours_alone(table, "AUROC in %, in-distribution positive")
    note = f"{short.note} Rank: of the last mean among all pairs of a model and a score."
    return short._replace(body=[_with_place(line, order) for line in short.body], note=note, head=[*short.head, "rank"])


def _calibration(measured: Measured) -> Table | None:
    table = calibration(measured, _CALIBRATED)
    return None if table is None else _ours_alone(table, "Lower ECE (15 bins) and NLL are better")


def _ours_alone(table: Table, first: str) -> Table:
    """Without the paper's numbers, without what only the paper measured, and with a short note."""
    there = [[cell._replace(paper="") for cell in line] for line in table.body if any(cell.seeds for cell in line)]
    note = (
        f"{first}; mean ± standard deviation over seeds, of one seed where there is no ±. Bold: the best, and what "
        "cannot be told from it (95 %, over seeds and images); nothing where that is most of the column."
    )
    return table._replace(body=there, note=note)


def _with_place(line: list[Cell], order: Sequence[tuple[Pair, Cell, object]]) -> list[Cell]:
    """The line and which place it has among all pairs."""
    pair = (line[0].text, line[1].text)
    places = [number for number, (own, _, _) in enumerate(order, 1) if own == pair]
    return [*line, Cell(f"{places[0]} of {len(order)}") if places else Cell()]


def standing(results: Results, data: str) -> str:
    """Where U of α-β stands among all pairs, and what is above it beyond noise, over the sets and over corruptions."""
    (measured,) = [one for one in Measured.split(results) if (one.data, one.protocol) == (data, "held-out")]
    lists = {
        f"the {len(whole_sets(measured))} sets": whole_sets(measured),
        "the corruptions on which no score of ours was chosen": corruptions_not_chosen_on(measured),
    }
    lines = []
    for name, sets in lists.items():
        order = ranked(measured, sets)
        at = [number for number, (pair, _, _) in enumerate(order) if pair == OURS]
        if not at:
            continue
        _, cell, ours = order[at[0]]
        above = [(pair, one.text, effect - ours) for pair, one, effect in order[: at[0]]]
        clear = [f"`{score}` of {model} ({text})" for (model, score), text, apart in above if apart.low > 0]
        maybe = [f"`{score}` of {model} ({text})" for (model, score), text, apart in above if apart.low <= 0]
        lines.append(
            f"- **{data}, mean AUROC over {name}:** U of α-β is number {at[0] + 1} of {len(order)} with {cell.text}. "
            f"Above it beyond noise: {', '.join(clear) or 'none'}. Above it within noise: {', '.join(maybe) or 'none'}."
        )
    return "\n".join(lines) + "\n"


def verdicts(found: Sequence[Finding]) -> str:
    """How many claims hold, a line for each ID data set."""
    lines = ["| ID data | holds | contradicted | not shown | not measured |", "| :-- | --: | --: | --: | --: |"]
    for data in dict.fromkeys(one.data for one in found):
        own = Counter(one.reason or one.verdict for one in found if one.data == data)
        words = ("holds", "contradicted", "not shown", "not measured")
        lines.append(f"| {data} | " + " | ".join(str(own[word]) for word in words) + " |")
    return "\n".join(lines) + "\n"
