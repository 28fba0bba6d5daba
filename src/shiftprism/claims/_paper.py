"""The numbers of the paper's own tables, as data: `paper.csv` beside this file, in the paper's units."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from shiftprism.rows import Key


class PaperNumber(NamedTuple):
    """One number of the paper, with its place there and its names here."""

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
    def key(self) -> Key:
        """(model, shift, severity, subject, metric), in our names."""
        return self.model, self.shift, self.severity, self.subject, self.metric


def paper_value(data: str, key: Key) -> PaperNumber | None:
    """The paper's number for rows of ours on `data`, by (model, shift, severity, subject, metric); None without one.

    Its row "Hyper-Free/Generalized ODIN" answers for both of our models (its caption: they are the same). Its
    Mahalanobis distance, in logit space, is `mahalanobis_logits`; its GSD row is taken for GSD with its
    exponential map.

    >>> number = paper_value("cifar10", ("alpha-beta", "svhn", 0, "u", "auroc"))
    >>> number.value, number.std, number.text, number.table
    (0.9954, 0.0008, '99.54 ± 0.08', 1)
    >>> paper_value("cifar10", ("ensemble", "svhn", 0, "entropy", "auroc")).text
    '97.73 ± 0.31*'
    """
    model, *rest = key
    return _by_key().get((data, (_SAME.get(model, model), *rest)))


@cache
def _by_key() -> dict[tuple[str, tuple[object, ...]], PaperNumber]:
    return {(number.data, number.key): number for number in PAPER}


def _parse_number(line: dict[str, str]) -> PaperNumber:
    # the decimal point is moved, not multiplied: 99.54 becomes .9954 exactly
    shift = "e-2" if line["metric"] in ("auroc", "tnr_at_tpr95", "accuracy") else ""
    value, std = float(line["value"] + shift), float(line["std"] + shift) if line["std"] else None
    text = line["value"] + (f" ± {line['std']}" if line["std"] else "") + line["mark"]
    numbers = {"table": int(line["table"]), "severity": int(line["severity"]), "value": value, "std": std, "text": text}
    names = ("data", "shift", "model", "subject", "metric", "mark", "emphasis")
    return PaperNumber(**numbers, **{name: line[name] for name in names})  # type: ignore[arg-type]


PUBLISHED_IMAGES = {"cifar10": 10_000, "cifar100": 10_000, "svhn": 26_032, "tiny-imagenet": 10_000}
"""The test images of each set as published, all of which the paper uses. A set with fewer is a subset."""
_SAME = {"hyper-free": "odin"}
_TEXT = files("shiftprism.claims").joinpath("paper.csv").read_text(encoding="utf-8")
PAPER: tuple[PaperNumber, ...] = tuple(_parse_number(line) for line in csv.DictReader(_TEXT.splitlines()))
"""All 624 numbers of Tables 1–3 and 5–8, in the paper's order (Table 4 is `shifts.CIFAR100_SPLITS`)."""
