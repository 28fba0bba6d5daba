"""Rows in, the short tables of the demo out: what detects, what is calibrated, and both in words."""

from collections.abc import Sequence
from statistics import fmean

from shiftprism.benchmark import Row, Summary, summarise
from shiftprism.report._table import Cell, Table, names


def detection_table(rows: Sequence[Row]) -> Table:
    """AUROC of every model and score on every shift, all severities of a shift pooled; a model's best mean is bold."""
    found = summarise(row for row in rows if row.metric == "auroc")
    shifts = list(dict.fromkeys((row.shift, row.kind) for row in rows if row.kind != "none"))
    pairs = list(dict.fromkeys((row.model, row.subject) for row in rows if row.metric == "auroc"))
    body = []
    for model, score in pairs:
        cells = []
        for shift, _ in shifts:
            best = max(found[other, shift, 0, each, "auroc"].mean for other, each in pairs if other == model)
            one = found[model, shift, 0, score, "auroc"]
            cells.append(_cell(_percent(one), one, one.mean == best))
        body.append(names(model, score) + cells)
    head = ["model", "score", *(f"{words(shift)} ({kind})" for shift, kind in shifts)]
    note = "AUROC in %, in-distribution positive, mean ± standard deviation over seeds; bold: the best mean of a model."
    return Table("Does it detect?", note, head, body, 2)


def calibration_table(rows: Sequence[Row]) -> Table:
    """Accuracy, ECE and NLL before and after calibration, on clean data and averaged over the covariate shifts."""
    kept = [row for row in rows if row.metric in ("accuracy", "ece", "nll")]
    body = []
    for model in dict.fromkeys(row.model for row in kept):
        for kind, images in (("none", "clean"), ("covariate", "corrupted")):
            for subject in dict.fromkeys(row.subject for row in kept):
                own = [row for row in kept if (row.model, row.kind, row.subject) == (model, kind, subject)]
                accuracy, ece, nll = (
                    _averaged([row for row in own if row.metric == m]) for m in ("accuracy", "ece", "nll")
                )
                name = "uncalibrated" if subject == "none" else subject
                cells = [_cell(_percent(accuracy), accuracy), _cell(_percent(ece), ece)]
                body.append([*names(model, images, name), *cells, _cell(_spread(nll, 1, 3), nll)])
    head = ["model", "images", "calibrator", "accuracy, %", "ECE, %", "NLL"]
    note = (
        "Mean ± standard deviation over seeds; lower ECE and NLL are better. Calibrators were fitted on held-out clean "
        "data. Corrupted: the mean over all corruptions and severities."
    )
    return Table("Can the confidence be trusted?", note, head, body, 3)


def in_short(rows: Sequence[Row]) -> list[str]:
    """A sentence for each shift: the best score of each model, said to be no clear winner where the spread says so."""
    found = summarise(row for row in rows if row.metric == "auroc")
    sentences = []
    for shift, kind in dict.fromkeys((row.shift, row.kind) for row in rows if row.kind != "none"):
        parts = []
        for model in dict.fromkeys(row.model for row in rows):
            own = {key[3]: one for key, one in found.items() if key[:3] == (model, shift, 0)}
            best = max(own, key=lambda score: own[score].mean)
            rivals = [score for score in own if own[score].mean >= own[best].mean - own[best].std and score != best]
            also = f", within one deviation of {', '.join(rivals)}" if rivals else ""
            parts.append(f"{model} detects it best with {best} ({_percent(own[best])} %{also})")
        sentences.append(f"{words(shift)} ({kind} shift): {'; '.join(parts)}.")
    return sentences


def words(name: str) -> str:
    """A name as a reader says it."""
    return name.replace("_", " ")


def _averaged(rows: Sequence[Row]) -> Summary:
    """Over conditions first, then mean and spread over seeds."""
    seeds = dict.fromkeys(row.seed for row in rows)
    return Summary.of([fmean(row.value for row in rows if row.seed == seed) for seed in seeds])


def _percent(one: Summary) -> str:
    return _spread(one, 100, 1)


def _cell(text: str, one: Summary, bold: bool = False) -> Cell:
    return Cell(text, bold, "", one.mean, one.std, one.seeds)


def _spread(one: Summary, scale: int, digits: int) -> str:
    """Mean ± standard deviation; the mean alone of a single seed, which has none."""
    deviation = f" ± {scale * one.std:.{digits}f}" if one.seeds > 1 else ""
    return f"{scale * one.mean:.{digits}f}{deviation}"
