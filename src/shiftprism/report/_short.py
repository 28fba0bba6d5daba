"""What a README has room for: two short tables, where U of α-β stands, and how many claims hold."""

from collections import Counter
from collections.abc import Sequence

from shiftprism.benchmark import Results
from shiftprism.benchmark._bootstrap import Effect, Measured
from shiftprism.claims import PAPER, Finding
from shiftprism.report._paper_tables import (
    OURS,
    Pair,
    calibrated,
    calibration,
    corruptions_not_chosen_on,
    detection,
    ranked,
    whole_sets,
)
from shiftprism.report._table import Cell, Table
from shiftprism.report._tables import words

_BEST = 5
"""So many of the best of all pairs are in the short table, whoever they are."""
_BESIDE: set[Pair] = {
    *(("vanilla", score) for score in ("u", "knn")),
    *(("alpha-beta", score) for score in ("g", "h", "u", "prism")),
    *(("gsd", "u"), ("alpha", "u"), ("beta", "u")),
}
"""What the short table has beside the paper's own pairs."""
_CALIBRATED = {
    *((model, calibrator) for model in ("vanilla", "alpha-beta") for calibrator in ("none", "temperature")),
    *((model, "alpha-beta") for model in ("vanilla", "alpha-beta")),
    *(("gsd", "exponential-map"), ("ensemble", "none"), ("sngp", "none"), ("duq", "none")),
}
Order = list[tuple[Pair, Cell, Effect]]


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
    """The paper's pairs, ours, the best of all pairs and the best of each set: without them it would hide who won."""
    sets = whole_sets(measured)
    order = ranked(measured, sets)
    best = {pair for pair, _, _ in order[:_BEST]} | {ranked(measured, [one])[0][0] for one in sets if order}
    theirs = {(one.model, one.subject) for one in PAPER if one.table == 1}
    table = detection(measured, only=theirs | _BESIDE | best)
    if table is None:
        return None
    short = _ours_alone(table, "AUROC in %, in-distribution positive")
    note = (
        f"{short.note} Shown are the pairs of the paper's Table 1, ours, the {_BEST} best of all pairs and the best of "
        "each set. Rank: of the mean, among all pairs of a model and a score."
    )
    return short._replace(body=[_with_place(line, order) for line in short.body], note=note, head=[*short.head, "rank"])


def _calibration(measured: Measured) -> Table | None:
    table = calibration(measured, _CALIBRATED)
    return None if table is None else _ours_alone(table, "Lower ECE (15 bins) and NLL are better")


def _ours_alone(table: Table, first: str) -> Table:
    """Without the paper's numbers, without what only the paper measured, and with a short note."""
    there = [[cell._replace(paper="") for cell in line] for line in table.body if any(cell.seeds for cell in line)]
    note = (
        f"{first}; mean ± standard deviation over seeds, of one seed where there is no ±. Bold: the best of these, and "
        "what cannot be told from it (95 %, over seeds and images); nothing where that is most of the column."
    )
    return table._replace(body=there, note=note)


def _with_place(line: list[Cell], order: Order) -> list[Cell]:
    """The line and which place it has among all pairs."""
    pair = (line[0].text, line[1].text)
    places = [number for number, (own, _, _) in enumerate(order, 1) if own == pair]
    return [*line, Cell(f"{places[0]} of {len(order)}") if places else Cell()]


def standing(results: Results, data: str) -> str:
    """Who is above U of α-β: over the sets, over corruptions, in each set; and above its calibration. As a list."""
    (measured,) = [one for one in Measured.split(results) if (one.data, one.protocol) == (data, "held-out")]
    sets = whole_sets(measured)
    lines = [
        _above(ranked(measured, sets), OURS, f"{data}, mean AUROC over {', '.join(map(words, sets))}", "U of α-β"),
        _above(
            ranked(measured, corruptions_not_chosen_on(measured)),
            OURS,
            f"{data}, mean AUROC over the corruptions on which no score of ours was chosen",
            "U of α-β",
        ),
    ]
    lines += [_above(ranked(measured, [one]), OURS, f"{data}, AUROC on {words(one)}", "U of α-β", 5) for one in sets]
    for shift in ("clean", "corrupted"):
        found = calibrated(measured, shift)
        lines.append(_above(found, ("alpha-beta", "alpha-beta"), f"{data}, ECE, {shift}", "α-β calibrated by α-β", 5))
    return "".join(f"- {line}\n" for line in lines if line)


def _above(order: Order, ours: Pair, what: str, who: str, most: int = 12) -> str:
    """A sentence: the place of ours, and what is before it beyond noise and within; empty where it was not measured."""
    at = [number for number, (pair, _, _) in enumerate(order) if pair == ours]
    if not at:
        return ""
    _, cell, effect = order[at[0]]
    clear: list[str] = []
    maybe: list[str] = []
    for (model, subject), other, own in order[: at[0]]:
        seeds = ", one seed" if own.seeds == 1 else ""
        (clear if (own - effect).low > 0 else maybe).append(f"`{subject}` of {model} ({other.text}{seeds})")
    return (
        f"**{what}:** {who} is number {at[0] + 1} of {len(order)} with {cell.text}. Before it beyond noise: "
        f"{_few(clear, most)}. Before it within noise: {_few(maybe, most)}."
    )


def _few(texts: Sequence[str], most: int) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return (", ".join(texts[:most]) + more) or "none"


def verdicts(found: Sequence[Finding]) -> str:
    """How many claims hold, a line for each ID data set."""
    lines = ["| ID data | holds | contradicted | not shown | not measured |", "| :-- | --: | --: | --: | --: |"]
    for data in dict.fromkeys(one.data for one in found):
        own = Counter(one.reason or one.verdict for one in found if one.data == data)
        kinds = ("holds", "contradicted", "not shown", "not measured")
        lines.append(f"| {data} | " + " | ".join(str(own[kind]) for kind in kinds) + " |")
    return "\n".join(lines) + "\n"
