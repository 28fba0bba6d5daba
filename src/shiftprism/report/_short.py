"""What a README has room for: two short tables, the rank of U of α-β, and how many claims hold."""

from collections import Counter
from collections.abc import Sequence

from shiftprism.claims import JUDGEMENTS, PAPER, Finding
from shiftprism.report._table import Cell, Table, label_cells
from shiftprism.report._tables import (
    OURS,
    Pair,
    Ranked,
    calibration_table,
    compare_with,
    corruptions_not_chosen_on,
    detection_table,
    find_rank_interval,
    print_interval,
    rank_calibrators,
    rank_scores,
    whole_sets,
)
from shiftprism.rows import Measured, Results, display_name

_BEST = 5
"""The short table has this many of the best pairs, whoever they are."""
_BESIDE: set[Pair] = {
    *(("vanilla", score) for score in ("u", "knn", "spectrum")),
    *(("alpha-beta", score) for score in ("g", "h", "u", "prism", "spectrum")),
    *(("gsd", "u"), ("alpha", "u"), ("beta", "u")),
}
"""The pairs of the short table beside the paper's own."""
_CALIBRATED = {
    *((model, calibrator) for model in ("vanilla", "alpha-beta") for calibrator in ("none", "temperature")),
    *((model, "alpha-beta") for model in ("vanilla", "alpha-beta")),
    *(("gsd", "exponential-map"), ("ensemble", "none"), ("sngp", "none"), ("duq", "none")),
}
_OWN_SCORES = {"style", "spectrum", "prism", "fisher", "g_two_sided"}
"""Scores that this library adds."""
_PAPER_SCORES = {"g", "h", "u", "kl_uniform"}
_BASELINES = {"vanilla", "ensemble", "odin", "ddu", "sngp", "duq"}
"""Models of others: neither the paper's heads nor what this library adds."""

_CALIBRATION = "Lower ECE (15 bins) and NLL are better; corrupted: the mean over corruptions and severities"


def short_tables(results: Results) -> dict[str, Table]:
    """The short detection and calibration table of each ID data set, by a name fit for a file."""
    tables: dict[str, Table | None] = {}
    for measured in Measured.split(results):
        if measured.protocol == "paper":  # somebody else's network beside ours would be no comparison
            continue
        tables[f"{measured.data}-short-detection"] = _short_detection(measured)
        tables[f"{measured.data}-short-calibration"] = _short_calibration(measured)
    return {name: table._replace(stem=name) for name, table in tables.items() if table is not None}


def _short_detection(measured: Measured) -> Table | None:
    """The paper's pairs, ours, the best of all pairs and the best of each set: without these it would hide who won."""
    sets = whole_sets(measured)
    ranking = rank_scores(measured, sets)
    best = {one.pair for one in ranking[:_BEST]} | {rank_scores(measured, [s])[0].pair for s in sets if ranking}
    theirs = {(one.model, one.subject) for one in PAPER if one.table == 1}
    table = detection_table(measured, only=theirs | _BESIDE | best)
    if table is None:
        return None
    short = _without_paper(table, "AUROC in %, in-distribution positive")
    note = (
        f"{short.note} Shown are the pairs of the paper's Table 1, ours, the {_BEST} highest means of all pairs and "
        "the highest AUROC of each set. Rank: of the mean, among all pairs of a model and a score."
    )
    return short._replace(body=[_add_rank(line, ranking) for line in short.body], note=note, head=[*short.head, "rank"])


def _short_calibration(measured: Measured) -> Table | None:
    table = calibration_table(measured, _CALIBRATED)
    return None if table is None else _without_paper(table, _CALIBRATION)


def _without_paper(table: Table, first: str) -> Table:
    """The lines that we measured, without the paper's numbers and with a short note."""
    body = [[cell._replace(paper="") for cell in line] for line in table.body if any(cell.seeds for cell in line)]
    note = (
        f"{first}; mean ± standard deviation over seeds, or the value of one seed, which is never bold beside other "
        "models. Bold: the best of these, and those after it up to the first that is significantly worse (5 %, over "
        "seeds and images); nothing where that is most of the column."
    )
    return table._replace(body=body, note=note)


def _add_rank(line: list[Cell], ranking: Sequence[Ranked]) -> list[Cell]:
    """The line, and its rank among all pairs."""
    pair = (line[0].text, line[1].text)
    ranks = [number for number, one in enumerate(ranking, 1) if one.pair == pair]
    return [*line, Cell(f"{ranks[0]} of {len(ranking)}") if ranks else Cell()]


def standing(results: Results, data: str) -> str:
    """The methods above U of α-β: over the sets, over corruptions, on each set; and above its calibration. A list."""
    (measured,) = [one for one in Measured.split(results) if (one.data, one.protocol) == (data, "held-out")]
    sets, blind = whole_sets(measured), corruptions_not_chosen_on(measured)
    rankings = {
        ", ".join(map(display_name, sets)): rank_scores(measured, sets),
        "the corruptions on which `prism` and `fisher` were not chosen": rank_scores(measured, blind),
    }
    lines = [
        _list_better(ranking, OURS, f"{data}, mean AUROC over {what}", "U of α-β") for what, ranking in rankings.items()
    ]
    for one in sets:
        ranking = rank_scores(measured, [one])
        lines.append(_list_better(ranking, OURS, f"{data}, AUROC on {display_name(one)}", "U of α-β", most=5))
    for shift in ("clean", "corrupted"):
        ranking, ours = rank_calibrators(measured, shift), ("alpha-beta", "alpha-beta")
        what = f"{data}, {'mean ECE' if shift == 'corrupted' else 'ECE'}, {shift}"
        lines.append(_list_better(ranking, ours, what, "α-β calibrated by α-β", most=5))
    return "".join(f"- {line}\n" for line in lines if line)


def rank_table(results: Results, data: str) -> Table:
    """The ranks of U and `spectrum` of α-β and of the best of others, by mean AUROC over the sets, with intervals."""
    (measured,) = [one for one in Measured.split(results) if (one.data, one.protocol) == (data, "held-out")]
    sets = whole_sets(measured)
    ranking = rank_scores(measured, sets)
    # one seed shows no seed noise: it can neither be placed nor stand ahead or behind
    several = [one for one in ranking if one.effect.seeds > 1]
    of_others = [one.pair for one in several if one.pair[1] not in _OWN_SCORES | _PAPER_SCORES]
    chosen = {
        "`spectrum` of α-β": [("alpha-beta", "spectrum")],
        "highest score of others, any network": of_others,
        "highest score of others, network of others": [pair for pair in of_others if pair[0] in _BASELINES],
        "U of α-β": [OURS],
    }
    body = []
    for name, pairs in chosen.items():
        for place in [n for n, one in enumerate(several) if one.pair in pairs][:1]:
            one = several[place]
            low, high = find_rank_interval(several, place)
            ranks = label_cells(f"{ranking.index(one) + 1} of {len(ranking)}", str(place + 1), f"{low} to {high}")
            body.append([*label_cells(name, *one.pair), *ranks, one.cell, print_interval(one.effect)])
    among = f"among {len(several)} with seeds"
    head = ["", "model", "score", "rank", among, "95 % interval", f"mean AUROC of {len(sets)}", "95 % interval"]
    note = (
        "With seeds: with more than one. Of others: neither the paper's nor ours. The interval of a rank: pairs that "
        "are significantly better are ahead, those that are significantly worse behind (5 %, Holm's correction for all "
        "of them), the others may be either."
    )
    return Table(f"{data}: ranks", note, head, body, 3, section="all scores", stem=f"{data}-ranks")


def _list_better(ranking: Sequence[Ranked], ours: Pair, what: str, who: str, most: int = 12) -> str:
    """A sentence: the rank of ours, and what is better, significantly or not; empty where ours was not measured."""
    places = [number for number, one in enumerate(ranking) if one.pair == ours]
    if not places:
        return ""
    own = ranking[places[0]]
    verdicts = compare_with(own.effect, [one.effect for one in ranking])  # all pairs, so that Holm counts them all
    higher: dict[str, list[str]] = {"better": [], "no": [], "one seed": []}
    for one, verdict in zip(ranking[: places[0]], verdicts, strict=False):
        model, subject = one.pair
        higher[verdict].append(f"`{subject}` of {model} ({one.cell.text})")
    seeds = f" Ahead with one seed, which decides nothing: {_shorten(higher['one seed'], most)}."
    return (
        f"**{what}:** {who} is number {places[0] + 1} of {len(ranking)} with {own.cell.text}. Significantly better: "
        f"{_shorten(higher['better'], most)}. Better, but not significantly: "
        f"{_shorten(higher['no'], most)}.{seeds if higher['one seed'] else ''}"
    )


def _shorten(texts: Sequence[str], most: int) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return (", ".join(texts[:most]) + more) or "none"


def judgement_counts(findings: Sequence[Finding]) -> str:
    """How many claims have each judgement, a line for each ID data set, as Markdown."""
    lines = [f"| ID data | {' | '.join(JUDGEMENTS)} |", "| :-- |" + " --: |" * len(JUDGEMENTS)]
    for data in dict.fromkeys(finding.data for finding in findings):
        counts = Counter(finding.judgement for finding in findings if finding.data == data)
        lines.append(f"| {data} | " + " | ".join(str(counts[name]) for name in JUDGEMENTS) + " |")
    return "\n".join(lines) + "\n"
