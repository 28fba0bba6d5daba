"""The paper's tables as data: every number against the paper's own source, and some copied by hand."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from shiftprism.claims import PAPER, PaperNumber, paper_value
from shiftprism.rows import Key

SHARED = Path(os.environ.get("SHIFTPRISM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SOURCE = SHARED / "paper" / "geometric_odin.tex"
LABELS = {
    "tab:ood_results": 1,
    "tab:cifar10c_full": 2,
    "tab:cifar100C_full": 3,
    "tab:motion_blur": 5,
    "tab:zoom_blur": 6,
    "tab:shot_noise": 7,
    "tab:concept_shift": 8,
}
Cells = list[tuple[str, str, str, str]]
"""(value, std, mark, emphasis)."""


def printed(table: str) -> Cells:
    """Every number of a table's body, read off the source by tokens, row after row."""
    body = table[table.index("\\midrule") :]
    body = re.sub(r"\\multirow\{\d\}\{\*\} ?", "", body)
    body = re.sub(r"~?\\citep\{[^}]*\}", "", body)
    found = []
    for line in re.sub(r"\\bottomrule.*", "", body, flags=re.DOTALL).split("\\\\"):
        dagger = "†" if "dagger" in line else ""
        for cell in line.split("&")[1:]:
            number = re.search(r"(\d+\.\d+)\s*(?:\$\\pm\$\s*(\d+\.\d+))?(\*?)", cell)
            if number:
                look = re.search(r"textbf|underline", cell)
                emphasis = {"textbf": "bold", "underline": "underline", None: ""}[look[0] if look else None]
                found.append((number[1], number[2] or "", number[3] or dagger, emphasis))
    return found


def kept(number: PaperNumber) -> tuple[str, str, str, str]:
    value, _, std = (
        number.text.removesuffix(number.mark).partition(" ± ") if number.mark else number.text.partition(" ± ")
    )
    return value, std, number.mark, number.emphasis


def tables() -> dict[int, str]:
    if not SOURCE.is_file():
        pytest.skip(f"the paper's source is not at {SOURCE}; set SHIFTPRISM_SHARED")
    tex = SOURCE.read_text(encoding="utf-8")
    parts = re.findall(r"\\begin\{tabular\}.*?\\label\{(?:[^}]*)\}", tex, flags=re.DOTALL)
    labelled = {re.findall(r"\\label\{([^}]*)\}", part)[-1]: part for part in parts}
    return {number: labelled[label] for label, number in LABELS.items()}


@pytest.mark.parametrize("number", sorted(LABELS.values()))
def test_every_number_is_the_papers(number: int) -> None:
    assert [kept(one) for one in PAPER if one.table == number] == printed(tables()[number])


def test_columns_of_the_ladders_are_in_the_papers_order() -> None:
    for number in (5, 6, 7, 8):
        head = tables()[number].split("\\midrule")[0]
        steps = [int(step) for step in re.findall(r"&\s*(\d+)\s*(?=[&\\])", head)]
        own = [one for one in PAPER if one.table == number][: len(steps)]
        assert [one.severity for one in own] == steps
        assert [one.metric for one in own] == ["auroc"] * (len(steps) // 2) + ["tnr_at_tpr95"] * (len(steps) // 2)


def test_none_is_missing() -> None:
    counts = Counter(one.table for one in PAPER)
    assert counts == {1: 13 * 7 - 13, 2: 8 * 6, 3: 8 * 6, 5: 90, 6: 90, 7: 90, 8: 180}  # 13 dashes in Table 1
    assert len({(one.data, one.key) for one in PAPER}) == len(PAPER) == 624
    assert Counter(one.mark for one in PAPER) == {"": 592, "*": 8, "†": 24}


# Copied by hand from the printed paper: data set, key, value, std, text, table.
GOLDEN = [
    ("cifar100", ("vanilla", "cifar10", 0, "energy", "auroc"), 0.8074, 0.0045, "80.74 ± 0.45", 1),
    ("cifar100", ("sngp", "svhn", 0, "entropy", "auroc"), 0.8571, 0.0081, "85.71 ± 0.81*", 1),
    ("cifar10", ("alpha-beta", "corrupted", 0, "u", "auroc"), 0.78, 0.0071, "78.00 ± 0.71", 1),
    ("cifar10", ("odin", "svhn", 0, "max_cosine", "auroc"), 0.9956, 0.0012, "99.56 ± 0.12", 1),
    ("cifar10", ("ddu", "tiny-imagenet", 0, "gmm", "auroc"), 0.8489, 0.0101, "84.89 ± 1.01", 1),
    ("cifar10", ("vanilla", "clean", 0, "temperature", "ece"), 0.003, 0.001, "0.003 ± 0.001", 2),
    ("cifar10", ("alpha-beta", "corrupted", 0, "alpha-beta", "ece"), 0.071, 0.0112, "0.071 ± 0.0112", 2),
    ("cifar10", ("sngp", "corrupted", 0, "none", "accuracy"), 0.746, 0.0001, "74.6 ± 0.01†", 2),
    ("cifar100", ("vanilla", "clean", 0, "none", "accuracy"), 0.8066, 0.0020, "80.66 ± 0.20", 3),
    ("cifar100", ("gsd", "corrupted", 0, "exponential-map", "nll"), 2.236, 0.021, "2.236 ± 0.021", 3),
    ("cifar10", ("alpha-beta", "motion_blur", 5, "g", "auroc"), 0.9125, 0.0056, "91.25 ± 0.56", 5),
    ("cifar10", ("alpha", "zoom_blur", 1, "u", "tnr_at_tpr95"), 0.1465, 0.0080, "14.65 ± 0.80", 6),
    ("cifar10", ("alpha-beta", "shot_noise", 3, "h", "auroc"), 0.8726, 0.0101, "87.26 ± 1.01", 7),
    ("cifar10", ("alpha", "concept-splits", 10, "h", "tnr_at_tpr95"), 0.7254, None, "72.54", 8),
]


@pytest.mark.parametrize(("data", "key", "value", "std", "text", "table"), GOLDEN)
def test_numbers_copied_by_hand(data: str, key: Key, value: float, std: float | None, text: str, table: int) -> None:
    found = paper_value(data, key)
    assert found is not None
    assert (found.value, found.std, found.text, found.table) == (value, std, text, table)


def test_what_the_paper_has_not_is_none() -> None:
    assert paper_value("cifar10", ("duq", "corrupted", 0, "kernel", "auroc")) is None
    assert paper_value("digits", ("vanilla", "svhn", 0, "msp", "auroc")) is None
    same = paper_value("cifar10", ("hyper-free", "svhn", 0, "max_cosine", "auroc"))
    assert same == paper_value("cifar10", ("odin", "svhn", 0, "max_cosine", "auroc"))
    assert same is not None
