"""The numbers of the paper's own tables, as data: `paper.csv` beside this file, in the paper's units."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

Place = tuple[str, str, int, str, str, str]
"""(data, shift, severity, model, subject, metric), in our names."""


class PaperNumber(NamedTuple):
    """One number of the paper, where it stands there and what it is called here."""

    table: int
    """1: near and far AUROC; 2, 3: calibration; 5 to 8: motion blur, zoom blur, shot noise, CIFAR-100 Splits."""
    data: str
    shift: str
    severity: int
    model: str
    subject: str
    metric: str
    value: float
    """As rows have it: a share, not per cent."""
    std: float | None
    """Over five runs; None where the paper prints none."""
    mark: str
    """* is a number the paper took from Mukhoti et al. 2021, † one from Liu et al. 2020; empty for its own."""
    emphasis: str
    """bold, underline or nothing, as the paper prints it."""
    text: str
    """As printed there: per cent for AUROC, TNR and accuracy."""

    @property
    def place(self) -> Place:
        """What it is looked up by."""
        return self.data, self.shift, self.severity, self.model, self.subject, self.metric


def paper_value(data: str, shift: str, severity: int, model: str, subject: str, metric: str) -> PaperNumber | None:
    """The paper's number for a row of ours; None where it has none.

    Its row "Hyper-Free/Generalized ODIN" answers for both of our models (its caption: they are the same). Its
    Mahalanobis distance, in logit space, is `mahalanobis_logits`; its GSD row is taken for GSD with its
    exponential map.

    >>> found = paper_value("cifar10", "svhn", 0, "alpha-beta", "u", "auroc")
    >>> found.value, found.std, found.text, found.table
    (0.9954, 0.0008, '99.54 ± 0.08', 1)
    >>> paper_value("cifar10", "svhn", 0, "ensemble", "entropy", "auroc").text
    '97.73 ± 0.31*'
    """
    return _by_place().get((data, shift, severity, _SAME.get(model, model), subject, metric))


@cache
def _by_place() -> dict[Place, PaperNumber]:
    return {number.place: number for number in PAPER}


def _number(line: dict[str, str]) -> PaperNumber:
    # digits are moved, not multiplied: 99.54 becomes .9954 and nothing beside it
    shift = "e-2" if line["metric"] in ("auroc", "tnr_at_tpr95", "accuracy") else ""
    value, std = float(line["value"] + shift), float(line["std"] + shift) if line["std"] else None
    text = line["value"] + (f" ± {line['std']}" if line["std"] else "") + line["mark"]
    names = line["data"], line["shift"], int(line["severity"]), line["model"], line["subject"], line["metric"]
    return PaperNumber(int(line["table"]), *names, value, std, line["mark"], line["emphasis"], text)


_SAME = {"hyper-free": "odin"}
_TEXT = files("shiftprism.claims").joinpath("paper.csv").read_text(encoding="utf-8")
PAPER: tuple[PaperNumber, ...] = tuple(_number(line) for line in csv.DictReader(_TEXT.splitlines()))
"""All 624 numbers of Tables 1–3 and 5–8, in the paper's order (Table 4 is `shifts.CIFAR100_SPLITS`)."""
