"""Results in, the tables of the paper out: our numbers, and beside each the paper's own where it has one."""

import math
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from shiftprism.claims import PAPER, PUBLISHED_IMAGES, paper_value
from shiftprism.report._table import NONE, Cell, Table, label_cells
from shiftprism.rows import (
    LEVEL,
    Effect,
    Key,
    Measured,
    Results,
    Summary,
    adjust_p_values,
    display_name,
    file_stem,
    is_own_score,
    why_left_out,
)

MODELS = (
    *("vanilla", "duq", "sngp", "ddu", "odin", "hyper-free", "inner", "euclidean", "gsd", "ensemble"),
    *("alpha", "beta", "alpha-beta", "alpha-beta-ensemble"),
)
"""The order of models in a table, that of the paper; others follow in the order of their rows."""
BOLD = (
    "Bold: the best mean, and those after it up to the first that is significantly worse (5 %, paired over seeds and "
    "images, Holm's correction). A model with one seed is not bold beside other models. Nothing is bold where that "
    "would be more than half of the rivals of the best."
)
BEST_AUROC = 0.55
"""Below it no score is called the best, because 50 % is chance."""
BOLD_AUROC = f"{BOLD} Nor where the highest AUROC is below {100 * BEST_AUROC:.0f} %."
CHOSEN_ON = ("motion_blur", "shot_noise", "gaussian_noise", "contrast")
"""The corruptions on which `tools/scores_trial.py` chose `prism` and `fisher`."""
_NOT_CHOSEN_ON = " over the corruptions on which prism and fisher were not chosen"
APART = ("pixels", "features-3d")
"""Rows that are no models to compare: the data themselves, and the model behind Fig. 5."""
Pair = tuple[str, str]
"""(model, score) or (model, calibrator)."""
OURS: Pair = ("alpha-beta", "u")


class Format(NamedTuple):
    """How a number is printed: mean ± standard deviation, or the mean alone of a single seed."""

    digits: int
    scale: float = 1.0

    def print(self, summary: Summary) -> str:
        spread = f" ± {self.scale * summary.std:.{self.digits}f}" if summary.seeds > 1 else ""
        return f"{self.scale * summary.mean:.{self.digits}f}{spread}"


PERCENT = Format(1, 100.0)


class Ranked(NamedTuple):
    """A pair with its number, in a ranking."""

    pair: Pair
    cell: Cell
    effect: Effect
    """Higher is better."""


def make_tables(results: Results) -> dict[str, Table]:
    """Every table that the rows can fill, by a name fit for a file, in reading order."""
    tables: dict[str, Table | None] = {}
    for measured in Measured.split(results):
        stem = file_stem(measured.data, *([] if measured.protocol in ("", "held-out") else [measured.protocol]))
        tables[f"{stem}-detection"] = detection_table(measured)
        tables[f"{stem}-tnr"] = detection_table(measured, "tnr_at_tpr95")
        tables[f"{stem}-ranking"] = ranking_table(measured, whole_sets(measured))
        blind = corruptions_not_chosen_on(measured)
        tables[f"{stem}-ranking-corruptions"] = ranking_table(measured, blind, _NOT_CHOSEN_ON)
        tables[f"{stem}-scores"] = detection_table(measured, everything=True)
        tables[f"{stem}-calibration"] = calibration_table(measured)
        tables[f"{stem}-which-shift"] = attribution_table(measured)
        for kind in ("concept", "covariate"):
            for shift in _paper_first(measured.shifts(kind, ladder=True)):
                tables[f"{stem}-ladder-{file_stem(shift)}"] = ladder_table(measured, shift)
    return {name: table._replace(stem=name) for name, table in tables.items() if table is not None}


def detection_table(
    measured: Measured, metric: str = "auroc", everything: bool = False, only: Collection[Pair] = ()
) -> Table | None:
    """Table 1 of the paper and g, h and U of each head, with the mean over the sets; or all, or `only` some pairs."""
    sets = whole_sets(measured, metric)
    ours = {(key[0], key[3]) for key in measured.index}
    wanted = {*(only or (ours if everything else _TABLE_1)), *(pair for pair in ours if is_own_score(pair[1]))}
    pairs = [pair for pair in _list_pairs(measured, sets, metric) if pair in wanted]
    if not pairs:
        return None
    columns = [[_read_number(measured, pair, (shift, 0, metric)) for pair in pairs] for shift in sets]
    head = ["model", "score", *(f"{display_name(shift)} ({measured.kinds[shift]})" for shift in sets)]
    if len(sets) > 1:
        columns.append([_average_sets(measured, pair, sets, metric) for pair in pairs])
        head.append(f"mean of {len(sets)}")
    shown = [_mark_best(column, metric) for column in columns]
    if everything:  # the paper's numbers are in the short table
        shown = [[cell._replace(paper="", paper_mean=math.nan) for cell in column] for column in shown]
    body = [[*label_cells(*pair), *(column[i] for column in shown)] for i, pair in enumerate(pairs)]
    word = {"auroc": "AUROC", "tnr_at_tpr95": "TNR@TPR95"}[metric]
    bold = BOLD_AUROC if metric == "auroc" else BOLD
    note = f"{word} in %, in-distribution positive, mean ± standard deviation over seeds. {bold}{_explain_paper(body)}"
    note += _name_subsets(sets, columns)
    title = f"{measured.title}: {word}, near and far" + (", every score" if everything else "")
    return _show_seeds(Table(title, note, head, body, 2, section="all scores" if everything else "detect"))


def calibration_table(measured: Measured, only: Collection[Pair] = ()) -> Table | None:
    """Tables 2 and 3 of the paper, with every model and calibrator, or `only` some pairs."""
    pairs = [pair for pair in _list_pairs(measured, ("clean", "corrupted"), "ece") if pair in only or not only]
    if not pairs:
        return None
    head, shown = ["model", "calibrator"], []
    for metric, word, form, sign in _CALIBRATION:
        for shift in ("clean", "corrupted"):
            column = [_read_number(measured, pair, (shift, 0, metric), form) for pair in pairs]
            if any(cell.text != NONE or cell.paper for cell, _ in column):
                shown.append(_mark_best([(cell, effect * sign if effect else None) for cell, effect in column], metric))
                # the mean of ECEs is not the ECE of all images together, which the reliability figure shows
                head.append("mean ECE, corrupted" if (metric, shift) == ("ece", "corrupted") else f"{word}, {shift}")
    labels = [label_cells(model, "uncalibrated" if c == "none" else c) for model, c in pairs]
    body = [line + [column[i] for column in shown] for i, line in enumerate(labels)]
    note = (
        "Mean ± standard deviation over seeds; higher accuracy, lower ECE (15 bins) and lower NLL are better. "
        "Corrupted: the mean of the values at each corruption and severity. (The reliability figure shows another ECE, "
        f"that of all corrupted images pooled.) {BOLD}{_explain_paper(body)}"
    )
    if any(cell.paper for line in body for cell in line):
        note += " The authors' public code computes ECE differently, so do not expect their values here."
    return _show_seeds(Table(f"{measured.title}: calibration", note, head, body, 2, section="trust"))


def attribution_table(measured: Measured) -> Table | None:
    """For each model the shares that are flagged and called covariate or concept, set by set, and `which_way`."""
    sets = ["clean", *whole_sets(measured, "flagged")]
    models = [model for model, _ in _list_pairs(measured, sets, "flagged")]
    if not models:
        return None
    steps = [step for step in _ATTRIBUTION_STEPS if _ladders(measured, step)]
    body = []
    for model in models:
        for metric, words in _CALLS.items():
            body.append(_attribution_line(measured, (model, _ATTRIBUTION), words, (sets, steps, metric)))
        for _, subject in (pair for pair in _list_pairs(measured, ("corrupted",), "which_way") if pair[0] == model):
            body.append(
                _attribution_line(measured, (model, subject), f"which way ({subject})", (sets, steps, "which_way"))
            )
    kinds = [f" ({measured.kinds[shift]})" if shift != "clean" else "" for shift in sets]
    head = ["model", "", *(display_name(shift) + kind for shift, kind in zip(sets, kinds, strict=True))]
    head += [f"corrupted, severity {step}" for step in steps]
    unseen = next((shift for shift in sets if measured.kinds[shift] == "concept"), "none")
    return Table(
        f"{measured.title}: which shift", _ATTRIBUTION_NOTE.format(unseen=unseen), head, body, 2, section="detect"
    )


def ladder_table(measured: Measured, shift: str) -> Table | None:
    """An appendix table of the paper: g, h and U of each model at each severity."""
    steps = measured.steps[shift]
    body: list[list[Cell]] = []
    metrics = [
        m for m in ("auroc", "tnr_at_tpr95") if any(k[1] == shift and k[2] and k[4] == m for k in measured.index)
    ]
    pairs = _list_pairs(measured, (shift,), "auroc", steps)
    for score in ("g", "h", "u", *dict.fromkeys(subject for _, subject in pairs if is_own_score(subject))):
        models = [model for model, own in pairs if own == score and (model in _GEOMETRIC or is_own_score(score))]
        columns = [
            _mark_best([_read_number(measured, (model, score), (shift, step, metric)) for model in models], metric)
            for metric in metrics
            for step in steps
        ]
        body += [[*label_cells(score, model), *(column[i] for column in columns)] for i, model in enumerate(models)]
    if not body:
        return None
    heads = {"auroc": "AUROC", "tnr_at_tpr95": "TNR"}
    head = ["score", "model", *(f"{heads[metric]} {step}" for metric in metrics for step in steps)]
    note = (
        "In %, at each severity, mean ± standard deviation over seeds; models are compared within a score. "
        f"{BOLD_AUROC}{_explain_paper(body)}"
    )
    return Table(f"{measured.title}: {display_name(shift)} by severity", note, head, body, 2, section="shift")


def ranking_table(measured: Measured, sets: Sequence[str], among: str = "") -> Table | None:
    """Every (model, score) pair by its mean AUROC over the sets, and whether it differs significantly from ours."""
    ranking = rank_scores(measured, sets)
    if len(ranking) < 2:
        return None
    cells = _mark_best([(one.cell, one.effect) for one in ranking], "auroc")
    ours = next((one.effect for one in ranking if one.pair == OURS), None)
    verdicts = compare_with(ours, [one.effect for one in ranking]) if ours else []
    body = []
    for place, (one, cell) in enumerate(zip(ranking, cells, strict=True)):
        against = [Cell(), Cell()]
        if ours is not None and one.pair != OURS:
            against = [_print_difference(one.effect, ours), Cell(verdicts[place])]
        body.append([*label_cells(str(place + 1), *one.pair), cell, print_interval(one.effect), *against])
    head = ["rank", "model", "score", f"mean AUROC of {len(sets)}", "95 % interval", "minus U of α-β", "significantly"]
    note = (
        f"AUROC in %, mean over {', '.join(map(display_name, sets))}, ± standard deviation over seeds; the interval is "
        "over seeds and images, or over images alone where a model has one seed, which decides nothing. Significantly: "
        f"5 %, with Holm's correction for all pairs. {BOLD_AUROC} Pairs that lack one of these sets are left out."
    )
    title = f"{measured.title}: all scores ranked{among}"
    return Table(title, note, head, body, 3, group=0, section="all scores")


def rank_scores(measured: Measured, sets: Sequence[str]) -> list[Ranked]:
    """Every pair that was measured on all of these sets, by its mean AUROC over them, the best first."""
    ranking = []
    for pair in _list_pairs(measured, sets, "auroc"):
        cell, effect = _average_sets(measured, pair, sets, "auroc")
        if effect is not None:
            ranking.append(Ranked(pair, cell, effect))
    return sorted(ranking, key=lambda one: -one.cell.mean)


def rank_calibrators(measured: Measured, shift: str) -> list[Ranked]:
    """Every model and calibrator by its ECE on clean or corrupted data, the smallest first; effects are negated."""
    ranking = []
    for pair in _list_pairs(measured, (shift,), "ece"):
        cell, effect = _read_number(measured, pair, (shift, 0, "ece"), Format(4))
        if effect is not None:
            ranking.append(Ranked(pair, cell, effect * -1.0))
    return sorted(ranking, key=lambda one: one.cell.mean)


def corruptions_not_chosen_on(measured: Measured) -> list[str]:
    """The corruptions that played no part in the choice of `fisher` and `prism`."""
    return [name for name in measured.shifts("covariate", ladder=True) if name not in CHOSEN_ON]


def whole_sets(measured: Measured, metric: str = "auroc") -> list[str]:
    """The sets that means are over: near concept, corrupted, far."""
    there = {key[1] for key in measured.index if key[4] == metric}
    kinds = ("concept", "covariate", "both")
    return [shift for kind in kinds for shift in measured.shifts(kind, ladder=False) if shift in there]


Number = tuple[Cell, Effect | None]
"""A cell, and the effect behind it where it was measured."""


def find_best(effects: Sequence[Effect | None]) -> list[bool]:
    """Which of these are bold; higher is better. The rule is `BOLD`.

    So a noisy number far down the order, which three seeds cannot tell from the best, is not printed as one of the
    best.
    """
    present = [effect for effect in effects if effect is not None]
    networks = {key for effect in present for key in effect.parts}
    # the scores of one network are compared on this network; models are compared over seeds
    order = [effect for effect in present if effect.seeds > 1 or len(networks) == 1]
    order.sort(key=lambda effect: -effect.value)
    best = order[:1]
    for effect, verdict in zip(order[1:], compare_with(order[0], order[1:]) if order else (), strict=True):
        if verdict == "worse":
            break
        best.append(effect)
    if len(order) < 2 or len(best) - 1 > (len(order) - 1) / 2:
        return [False] * len(effects)
    return [effect is not None and any(effect is one for one in best) for effect in effects]


def compare_with(ours: Effect, others: Sequence[Effect]) -> list[str]:
    """For each of the others "better", "worse" or "no" (not significantly), with Holm's correction for their number.

    "One seed" where a model has one seed alone, which decides nothing beside another model.
    """
    contrasts = [other - ours for other in others]
    able = [contrast for contrast in contrasts if contrast.decides]
    adjusted = iter(adjust_p_values([contrast.p_value() for contrast in able]))
    verdicts = []
    for contrast in contrasts:
        if not contrast.decides:
            verdicts.append("one seed")
        elif next(adjusted) >= 1 - LEVEL:
            verdicts.append("no")
        else:
            verdicts.append("better" if contrast.value > 0 else "worse")
    return verdicts


def find_rank_interval(ranking: Sequence[Ranked], place: int) -> tuple[int, int]:
    """The least and the greatest rank, 95 %, of the pair that stands at `place` in the ranking, counted from 0.

    A pair that is significantly better, corrected for all pairs, is ahead of it, one that is significantly worse is
    behind it, and all others may be either (Mogstad, Romano, Shaikh and Wilhelm 2024, Inference for Ranks).
    """
    others = [one.effect for number, one in enumerate(ranking) if number != place]
    verdicts = compare_with(ranking[place].effect, others)
    return 1 + verdicts.count("better"), len(ranking) - verdicts.count("worse")


def _mark_best(column: Sequence[Number], metric: str) -> list[Cell]:
    effects = [effect for _, effect in column]
    marks = find_best(effects)
    if metric == "auroc" and max((effect.value for effect in effects if effect), default=0.0) < BEST_AUROC:
        marks = [False] * len(marks)
    return [cell._replace(bold=mark) for (cell, _), mark in zip(column, marks, strict=True)]


def _read_number(measured: Measured, pair: Pair, place: tuple[str, int, str], form: Format = PERCENT) -> Number:
    """Our number for a pair at (shift, severity, metric), with the paper's beside it."""
    model, subject = pair
    shift, severity, metric = place
    key: Key = (model, shift, severity, subject, metric)
    theirs = paper_value(measured.data, key)
    cell = Cell(paper=theirs.text, paper_mean=theirs.value) if theirs else Cell()
    rows = measured.rows(key)
    if not rows:
        return cell, None
    filled = _fill_cell(cell, Summary.of([row.value for row in rows]), min(row.n for row in rows), form)
    return filled, measured.effect(*key)


def _average_sets(measured: Measured, pair: Pair, sets: Sequence[str], metric: str) -> Number:
    """The mean over the sets of each seed first, then over the seeds that have all sets."""
    effects = [measured.effect(pair[0], shift, 0, pair[1], metric) for shift in sets]
    present = [effect for effect in effects if effect is not None]
    by_seed = [{row.seed: row.value for row in measured.rows((pair[0], s, 0, pair[1], metric))} for s in sets]
    seeds = set.intersection(*map(set, by_seed)) if by_seed else set()
    if len(present) < len(sets) or not seeds:
        return Cell(), None
    summary = Summary.of([fmean(values[seed] for values in by_seed) for seed in sorted(seeds)])
    effect = Effect.mean(present)
    return _fill_cell(Cell(), summary, effect.n, PERCENT), effect


def _attribution_line(
    measured: Measured, pair: tuple[str, str], words: str, place: tuple[Sequence[str], Sequence[int], str]
) -> list[Cell]:
    sets, steps, metric = place
    cells = [_read_number(measured, pair, (shift, 0, metric))[0] for shift in sets]
    return [*label_cells(pair[0], words), *cells, *(_mean_at(measured, pair, step, metric) for step in steps)]


def _mean_at(measured: Measured, pair: tuple[str, str], severity: int, metric: str) -> Cell:
    """The mean over all corruptions at one severity."""
    ladders = _ladders(measured, severity)
    rows = [measured.rows((pair[0], shift, severity, pair[1], metric)) for shift in ladders]
    by_seed = [{row.seed: row for row in own} for own in rows]
    seeds = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
    if not seeds:
        return Cell()
    values = [sum(own[seed].value for own in by_seed) / len(by_seed) for seed in seeds]
    n = sum(own[seeds[0]].n for own in by_seed)
    return _fill_cell(Cell(), Summary.of(values), n, PERCENT)


def _ladders(measured: Measured, severity: int) -> list[str]:
    return [shift for shift in measured.shifts("covariate", ladder=True) if severity in measured.steps[shift]]


def _show_seeds(table: Table) -> Table:
    """The table with a column of the seeds of each row, where they differ: its means are then over other networks."""
    first, body = table.labels, table.body
    counts = [sorted({cell.seeds for cell in line if cell.seeds}) for line in body]
    if len({tuple(own) for own in counts if own}) < 2:
        return table
    texts = [f"{own[0]}" if len(own) == 1 else f"{own[0]} to {own[-1]}" if own else NONE for own in counts]
    lines = [[*line[:first], Cell(text), *line[first:]] for line, text in zip(body, texts, strict=True)]
    return table._replace(head=[*table.head[:first], "seeds", *table.head[first:]], body=lines)


def _fill_cell(cell: Cell, summary: Summary, n: int, form: Format) -> Cell:
    std = summary.std if summary.seeds > 1 else math.nan
    filled = cell._replace(text=form.print(summary), scale=form.scale, digits=form.digits, n=n)
    return filled._replace(mean=summary.mean, std=std, seeds=summary.seeds)


def print_interval(effect: Effect) -> Cell:
    """The interval of an AUROC; symmetric around the value, so it is cut off at 100 %."""
    images = " (images)" if effect.seeds == 1 else ""
    return Cell(f"{100 * max(effect.low, 0.0):.1f} to {100 * min(effect.high, 1.0):.1f}{images}")


def _print_difference(effect: Effect, ours: Effect) -> Cell:
    apart = effect - ours
    text = f"{100 * apart.value:+.1f} [{100 * apart.low:+.1f}, {100 * apart.high:+.1f}]"
    return Cell(text.replace("-", "−"), mean=apart.value, seeds=apart.seeds, n=apart.n)


def _list_pairs(measured: Measured, shifts: Iterable[str], metric: str, severities: Iterable[int] = (0,)) -> list[Pair]:
    """(model, subject) of our rows and of the paper's, in the paper's order."""
    wanted = {(shift, severity) for shift in shifts for severity in severities}
    ours = [
        (key[0], key[3])
        for key in measured.index
        if (key[1], key[2]) in wanted and key[4] == metric and key[0] not in APART and not why_left_out(key[0], key[3])
    ]
    if not ours:
        return []
    theirs = [
        (one.model, one.subject)
        for one in PAPER
        if one.data == measured.data and (one.shift, one.severity) in wanted and one.metric == metric
    ]
    known = {name: place for place, name in enumerate(MODELS)}
    order = list(dict.fromkeys(subject for _, subject in ours + theirs))
    return sorted(
        dict.fromkeys(ours + theirs), key=lambda pair: (known.get(pair[0], 99), pair[0], order.index(pair[1]))
    )


def _paper_first(shifts: Iterable[str]) -> list[str]:
    shown = {one.shift for one in PAPER}
    return sorted(shifts, key=lambda name: name not in shown)


def _name_subsets(sets: Sequence[str], columns: Sequence[Sequence[Number]]) -> str:
    """Which sets are parts of what was published, so that their numbers are no repetition of the paper's."""
    counts = {s: max((cell.n for cell, _ in column), default=0) for s, column in zip(sets, columns, strict=False)}
    parts = [
        f"{display_name(name)} is a subset here, {n:,} of the {PUBLISHED_IMAGES[name]:,} published test images"
        for name, n in counts.items()
        if 0 < n < PUBLISHED_IMAGES.get(name, 0)
    ]
    return f" {'; '.join(parts)}." if parts else ""


def _explain_paper(body: Sequence[Sequence[Cell]]) -> str:
    """The meaning of the parentheses, where there are any."""
    theirs = [cell.paper for line in body for cell in line if cell.paper]
    if not theirs:
        return ""
    note = " In parentheses: the paper's own number (WRN-28-10, 200 epochs, five runs)."
    note += " * it took from Mukhoti et al. 2021." if any("*" in text for text in theirs) else ""
    return note + (" † it took from Liu et al. 2020." if any("†" in text for text in theirs) else "")


_ATTRIBUTION_STEPS = (3, 5)
_CALLS = {"flagged": "flagged", "covariate": "called covariate", "concept": "called concept"}
_ATTRIBUTION = "attribution"
_ATTRIBUTION_NOTE = (
    "In %, mean ± standard deviation over seeds. Flagged: an alarm at 5 % false alarms by `spectrum`; called covariate "
    "where `style` is among its lowest 5 % too, otherwise concept. Sets of both kinds have no wrong answer. Which way: "
    "the AUROC between unseen classes ({unseen}) and corrupted images, by ln p_covariate − ln p_concept of two scores; "
    "50 is chance. Corrupted: the mean over corruptions and severities."
)
_GEOMETRIC = ("vanilla", "gsd", "alpha", "beta", "alpha-beta")
"""The models that ladders compare."""
_CALIBRATION = (
    ("accuracy", "accuracy %", PERCENT, 1.0),
    ("ece", "ECE", Format(4), -1.0),
    ("nll", "NLL", Format(3), -1.0),
)
"""Metric, heading, format, and the sign that makes higher better."""
_TABLE_1 = {
    *((one.model, one.subject) for one in PAPER if one.table == 1),
    *((model, score) for model in _GEOMETRIC for score in ("g", "h", "u")),
    *(("hyper-free", "max_cosine"), ("inner", "h"), ("euclidean", "max_similarity")),
}
"""The pairs that the paper's table has, and those that answer the same question."""
