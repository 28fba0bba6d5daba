"""Results in, the tables of the paper out: ours, and beside each number the paper's own where it has one."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import fmean

from shiftprism.benchmark import Results, Summary
from shiftprism.benchmark._bootstrap import Effect, Key, Measured
from shiftprism.claims import PAPER, paper_value
from shiftprism.report._table import Cell, Table, names
from shiftprism.report._tables import words

MODELS = (
    *("vanilla", "duq", "sngp", "ddu", "odin", "hyper-free", "inner", "euclidean", "gsd", "ensemble"),
    *("alpha", "beta", "alpha-beta"),
)
"""The order of models in a table, that of the paper; others follow as they come."""
BOLD = (
    "Bold: the best mean, and in order of their means those after it, up to the first whose difference from it is more "
    "than noise (its 95 % interval, paired bootstrap over seeds and images, excludes 0; of a model with one seed: over "
    "images alone). Nothing is bold where that would be more than half of the best one's rivals."
)
CHOSEN_ON = ("motion_blur", "shot_noise", "gaussian_noise", "contrast")
"""The corruptions that `tools/scores_trial.py` looked at to choose our own scores."""
_NOT_CHOSEN_ON = " over the corruptions on which none of them was chosen"
Pair = tuple[str, str]
OURS: Pair = ("alpha-beta", "u")


def paper_tables(results: Results) -> dict[str, Table]:
    """Every table that the rows can fill, by a name fit for a file, in reading order."""
    made: dict[str, Table | None] = {}
    for measured in Measured.split(results):
        stem = _filed(measured.data) + _protocol(measured, "-{}")
        made[f"{stem}-detection"] = detection(measured)
        made[f"{stem}-tnr"] = detection(measured, "tnr_at_tpr95")
        made[f"{stem}-ranking"] = ranking(measured, whole_sets(measured))
        made[f"{stem}-ranking-corruptions"] = ranking(measured, corruptions_not_chosen_on(measured), _NOT_CHOSEN_ON)
        made[f"{stem}-scores"] = detection(measured, everything=True)
        made[f"{stem}-calibration"] = calibration(measured)
        for kind in ("concept", "covariate"):
            for shift in _paper_first(measured.shifts(kind, ladder=True)):
                made[f"{stem}-ladder-{_filed(shift)}"] = ladder(measured, shift)
    return {name: table for name, table in made.items() if table is not None}


def detection(
    measured: Measured, metric: str = "auroc", everything: bool = False, only: Collection[Pair] = ()
) -> Table | None:
    """Table 1 of the paper and g, h and U of each head, with the mean over the sets; or all, or `only` some pairs."""
    sets = whole_sets(measured, metric)
    ours = {(key[0], key[3]) for key in measured.index}
    wanted = only or (ours if everything else _TABLE_1)
    pairs = [pair for pair in _pairs(measured, sets, metric) if pair in wanted]
    if not pairs:
        return None
    columns = [[_measured(measured, pair, shift, 0, metric, _percent) for pair in pairs] for shift in sets]
    head = ["model", "score", *(_headed(measured, shift) for shift in sets)]
    if len(sets) > 1:
        columns.append([_mean_over(measured, pair, sets, metric) for pair in pairs])
        head.append(f"mean of {len(sets)}")
    shown = [_bolded(column) for column in columns]
    if everything:  # the paper's numbers stand in the short table
        shown = [[cell._replace(paper="") for cell in column] for column in shown]
    body = [[*names(*pair), *(column[i] for column in shown)] for i, pair in enumerate(pairs)]
    word = {"auroc": "AUROC", "tnr_at_tpr95": "TNR@TPR95"}[metric]
    note = f"{word} in %, in-distribution positive, mean ± standard deviation over seeds. {BOLD}{_of_paper(body)}"
    title = f"{_title(measured)}: {word}, near and far" + (", every score" if everything else "")
    return Table(title, note, head, body, 2)


def calibration(measured: Measured, only: Collection[Pair] = ()) -> Table | None:
    """Tables 2 and 3 of the paper, with every model and calibrator, or `only` some pairs."""
    pairs = [pair for pair in _pairs(measured, ("clean", "corrupted"), "ece") if pair in only or not only]
    if not pairs:
        return None
    head, shown = ["model", "calibrator"], []
    for metric, word, form, sign in _CALIBRATION:
        for shift in ("clean", "corrupted"):
            column = [_measured(measured, pair, shift, 0, metric, form) for pair in pairs]
            if any(cell.text != Cell().text or cell.paper for cell, _ in column):
                shown.append(_bolded([(cell, effect * sign if effect else None) for cell, effect in column]))
                head.append(f"{word}, {shift}")
    lines = [[*names(model, "uncalibrated" if c == "none" else c)] for model, c in pairs]
    body = [line + [column[i] for column in shown] for i, line in enumerate(lines)]
    note = (
        "Mean ± standard deviation over seeds; higher accuracy, lower ECE (15 bins) and lower NLL are better. "
        f"Corrupted: the mean over all corruptions and severities. {BOLD}{_of_paper(body)}"
    )
    if any(cell.paper for line in body for cell in line):
        note += " The authors' public code computes ECE otherwise: their values are not to be expected from this one."
    return Table(f"{_title(measured)}: calibration", note, head, body, 2)


def ladder(measured: Measured, shift: str) -> Table | None:
    """An appendix table of the paper: g, h and U of each model at each severity."""
    steps = measured.steps[shift]
    body: list[list[Cell]] = []
    metrics = [
        m for m in ("auroc", "tnr_at_tpr95") if any(k[1] == shift and k[2] and k[4] == m for k in measured.index)
    ]
    for score in ("g", "h", "u"):
        models = [
            model for model, own in _pairs(measured, (shift,), "auroc", steps) if own == score and model in _GEOMETRIC
        ]
        found = [
            [_measured(measured, (model, score), shift, step, metric, _percent) for model in models]
            for metric in metrics
            for step in steps
        ]
        columns = [_bolded(column) for column in found]
        body += [[*names(score, model), *(column[i] for column in columns)] for i, model in enumerate(models)]
    if not body:
        return None
    heads = {"auroc": "AUROC", "tnr_at_tpr95": "TNR"}
    head = ["score", "model", *(f"{heads[metric]} {step}" for metric in metrics for step in steps)]
    note = (
        "In %, at each severity, mean ± standard deviation over seeds; models are compared within a score. "
        f"{BOLD}{_of_paper(body)}"
    )
    return Table(f"{_title(measured)}: {words(shift)} by severity", note, head, body, 2)


def ranking(measured: Measured, sets: Sequence[str], among: str = "") -> Table | None:
    """Every (model, score) pair by its mean AUROC over the sets, and whether U of α-β differs beyond noise."""
    found = ranked(measured, sets)
    if len(found) < 2:
        return None
    cells = _bolded([(cell, effect) for _, cell, effect in found])
    ours = next((effect for pair, _, effect in found if pair == OURS), None)
    body = []
    for place, ((pair, _, effect), cell) in enumerate(zip(found, cells, strict=True), 1):
        interval = Cell(f"{100 * effect.low:.1f} to {100 * effect.high:.1f}")
        body.append([*names(str(place), *pair), cell, interval, *_against(effect, ours, pair)])
    head = ["rank", "model", "score", f"mean AUROC of {len(sets)}", "95 % interval", "minus U of α-β", "beyond noise"]
    note = (
        f"AUROC in %, mean over {', '.join(map(words, sets))}, ± standard deviation over seeds; the interval is "
        f"over seeds and images. {BOLD} Pairs that lack one of these sets are left out."
    )
    return Table(f"{_title(measured)}: all scores ranked{among}", note, head, body, 3, group=0)


def ranked(measured: Measured, sets: Sequence[str]) -> list[tuple[Pair, Cell, Effect]]:
    """Every pair that was measured on all of these sets with its mean AUROC over them, the best first."""
    pairs = [pair for pair in _pairs(measured, sets, "auroc") if all(_effect(measured, pair, s) for s in sets)]
    found = []
    for pair in pairs if sets else ():
        cell, effect = _mean_over(measured, pair, sets, "auroc")
        if effect is not None:
            found.append((pair, cell, effect))
    return sorted(found, key=lambda one: -one[1].mean)


def calibrated(measured: Measured, shift: str) -> list[tuple[Pair, Cell, Effect]]:
    """Every model and calibrator with its ECE on clean or corrupted data, the smallest first; effects are negated."""
    found = []
    for pair in _pairs(measured, (shift,), "ece"):
        cell, effect = _measured(measured, pair, shift, 0, "ece", _form(4))
        if effect is not None:
            found.append((pair, cell, effect * -1.0))
    return sorted(found, key=lambda one: one[1].mean)


def corruptions_not_chosen_on(measured: Measured) -> list[str]:
    """The corruptions that nobody looked at when `fisher` and `prism` were chosen."""
    return [name for name in measured.shifts("covariate", ladder=True) if name not in CHOSEN_ON]


def whole_sets(measured: Measured, metric: str = "auroc") -> list[str]:
    """The sets that the means run over: near concept, corrupted, far."""
    there = {key[1] for key in measured.index if key[4] == metric}
    kinds = ("concept", "covariate", "both")
    return [shift for kind in kinds for shift in measured.shifts(kind, ladder=False) if shift in there]


Found = tuple[Cell, Effect | None]


def bold(effects: Sequence[Effect | None]) -> list[bool]:
    """Which of these are bold; higher is better. The rule is `BOLD`.

    A noisy number far down the order, which three seeds cannot tell from the best, is thus not printed as one of it.
    """
    order = sorted((effect for effect in effects if effect is not None), key=lambda effect: -effect.value)
    alike = [next(iter(order), None)]
    for effect in order[1:]:
        if (order[0] - effect).low > 0:
            break
        alike.append(effect)
    if len(order) < 2 or len(alike) - 1 > (len(order) - 1) / 2:
        return [False] * len(effects)
    return [effect is not None and any(effect is one for one in alike) for effect in effects]


def _bolded(column: Sequence[Found]) -> list[Cell]:
    marks = bold([effect for _, effect in column])
    return [cell._replace(bold=mark) for (cell, _), mark in zip(column, marks, strict=True)]


def _measured(
    measured: Measured, pair: Pair, shift: str, severity: int, metric: str, form: Callable[[Summary], str]
) -> Found:
    model, subject = pair
    key: Key = (model, shift, severity, subject, metric)
    theirs = paper_value(measured.data, shift, severity, model, subject, metric)
    cell, rows = Cell(paper=theirs.text if theirs else ""), measured.rows(key)
    if not rows:
        return cell, None
    one = Summary.of([row.value for row in rows])
    return _filled(form(one), one, min(row.n for row in rows), cell.paper), measured.effect(*key)


def _mean_over(measured: Measured, pair: Pair, sets: Sequence[str], metric: str) -> Found:
    """Of the sets first, then over the seeds that have them all."""
    effects = [measured.effect(pair[0], shift, 0, pair[1], metric) for shift in sets]
    found = [effect for effect in effects if effect is not None]
    by_seed = [{row.seed: row.value for row in measured.rows((pair[0], s, 0, pair[1], metric))} for s in sets]
    seeds = set.intersection(*map(set, by_seed))
    if len(found) < len(sets) or not seeds:
        return Cell(), None
    one = Summary.of([fmean(values[seed] for values in by_seed) for seed in sorted(seeds)])
    effect = Effect.mean(found)
    return _filled(_percent(one), one, effect.n), effect


def _filled(text: str, one: Summary, n: int, paper: str = "") -> Cell:
    return Cell(text, False, paper, one.mean, one.std if one.seeds > 1 else math.nan, one.seeds, n)


def _against(effect: Effect, ours: Effect | None, pair: Pair) -> list[Cell]:
    if ours is None or pair == OURS:
        return [Cell(), Cell()]
    apart = effect - ours
    text = f"{100 * apart.value:+.1f} [{100 * apart.low:+.1f}, {100 * apart.high:+.1f}]"
    word = "better" if apart.low > 0 else "worse" if apart.high < 0 else "no"
    return [Cell(text.replace("-", "−"), mean=apart.value, seeds=apart.seeds, n=apart.n), Cell(word)]


def _effect(measured: Measured, pair: Pair, shift: str) -> Effect | None:
    return measured.effect(pair[0], shift, 0, pair[1], "auroc")


def _pairs(measured: Measured, shifts: Iterable[str], metric: str, severities: Iterable[int] = (0,)) -> list[Pair]:
    """(model, subject) of our rows and of the paper's, in the paper's order."""
    wanted = {(shift, severity) for shift in shifts for severity in severities}
    ours = [
        (key[0], key[3])
        for key in measured.index
        if (key[1], key[2]) in wanted and key[4] == metric and key[0] not in _APART
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


def _of_paper(body: Sequence[Sequence[Cell]]) -> str:
    """What the parentheses mean, where there are any."""
    theirs = [cell.paper for line in body for cell in line if cell.paper]
    if not theirs:
        return ""
    note = " In parentheses: the paper's own number (WRN-28-10, 200 epochs, five runs)."
    note += " * it took from Mukhoti et al. 2021." if any("*" in text for text in theirs) else ""
    return note + (" † it took from Liu et al. 2020." if any("†" in text for text in theirs) else "")


def _headed(measured: Measured, shift: str) -> str:
    return f"{words(shift)} ({measured.kinds[shift]})"


def _title(measured: Measured) -> str:
    return measured.data + _protocol(measured, " ({} protocol)")


def _protocol(measured: Measured, form: str) -> str:
    return "" if measured.protocol in ("", "held-out") else form.format(measured.protocol)


def _filed(name: str) -> str:
    """A name fit for a file."""
    return re.sub(r"[^\w.-]+", "-", name)


def _form(digits: int, scale: float = 1.0) -> Callable[[Summary], str]:
    """Mean ± standard deviation; the mean alone of a single seed."""

    def form(one: Summary) -> str:
        spread = f" ± {scale * one.std:.{digits}f}" if one.seeds > 1 else ""
        return f"{scale * one.mean:.{digits}f}{spread}"

    return form


_percent = _form(1, 100.0)
_APART = ("pixels", "features-3d")
"""No models to compare: the data themselves, and the one behind Fig. 5."""
_GEOMETRIC = ("vanilla", "gsd", "alpha", "beta", "alpha-beta")
"""The models that ladders compare."""
_CALIBRATION: tuple[tuple[str, str, Callable[[Summary], str], float], ...] = (
    ("accuracy", "accuracy %", _percent, 1.0),
    ("ece", "ECE", _form(4), -1.0),
    ("nll", "NLL", _form(3), -1.0),
)
_TABLE_1 = {
    *((one.model, one.subject) for one in PAPER if one.table == 1),
    *((model, score) for model in _GEOMETRIC for score in ("g", "h", "u")),
    *(("hyper-free", "max_cosine"), ("inner", "h"), ("euclidean", "max_similarity")),
}
"""The pairs that the paper's table has, and those that answer the same question."""
