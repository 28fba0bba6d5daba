"""Verdicts: arrays of one length, tables, sentences, and the rule of Benjamini and Hochberg against scipy's."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shiftprism.verdicts import ARRAYS, KINDS, Verdict, Verdicts, reject_by_false_discovery


def make_verdicts(count: int = 5, calibrated: bool = True) -> Verdicts:
    draw = np.random.default_rng(0)
    numbers: dict[str, Any] = {name: draw.random(count) for name in ARRAYS if name not in ("label", "kind")}
    kind = np.array(KINDS)[np.arange(count) % 3]
    return Verdicts(label=np.arange(count) % 2, kind=kind, names=("cat", "dog"), calibrated=calibrated, **numbers)


def test_room_needs_no_torch() -> None:
    code = "import sys, shiftprism.verdicts; assert not {'torch', 'scipy', 'sklearn'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_masks_and_one_by_one_agree() -> None:
    verdicts = make_verdicts(7)
    assert len(verdicts) == 7
    flagged = verdicts[verdicts.kind != "in-distribution"]
    assert [one.kind for one in flagged] == [one.kind for one in verdicts if one.kind != "in-distribution"]
    joined = Verdicts.concat([verdicts[:3], verdicts[3:]])
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(joined, name), getattr(verdicts, name))
    assert sum(verdicts.counts().values()) == 7
    assert verdicts[-1] == verdicts[6]


def test_dicts_are_plain_and_hold_every_number() -> None:
    verdicts = make_verdicts(3)
    back = json.loads(json.dumps(verdicts.to_dicts()))
    for number, one in enumerate(back):
        assert one["name"] == ("cat", "dog")[one["label"]]
        assert one["p_concept"] == verdicts.p_concept[number]
        assert one["kind"] == KINDS[number]


def test_table_shows_twenty_rows_and_says_how_many_more() -> None:
    lines = str(make_verdicts(23)).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "… and 3 more"
    assert "uncalibrated" in str(make_verdicts(calibrated=False)).splitlines()[0]


WORDS = ("looks like the data", "style", "does not know")


@pytest.mark.parametrize(("kind", "words"), list(zip(KINDS, WORDS, strict=True)))
def test_sentence_says_the_kind_and_the_confidence(kind: str, words: str) -> None:
    sentence = str(Verdict("cat", 0.42, 1.0, 2.0, 0.01, 0.02, 0.03, kind, True))
    assert words in sentence
    assert "42 %" in sentence
    assert "uncalibrated" in str(Verdict("cat", 0.42, 1.0, 2.0, 0.01, 0.02, 0.03, kind, False))


def test_wrong_lengths_and_kinds_are_refused() -> None:
    arrays: dict[str, Any] = {name: [0.5] for name in ARRAYS} | {"label": [0], "kind": ["concept"]}
    with pytest.raises(ValueError, match="`style` to be one value for each image but got 2 values beside 1 labels"):
        Verdicts(**{**arrays, "style": [0.5, 0.5]})
    with pytest.raises(ValueError, match="`kind` to be one of in-distribution, covariate, concept but got strange"):
        Verdicts(**{**arrays, "kind": ["strange"]})


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=30), st.floats(0.01, 0.5))
def test_false_discoveries_agree_with_scipy(p: list[float], rate: float) -> None:
    adjusted = stats.false_discovery_control(p, method="bh")
    clear = np.abs(adjusted - rate) > 1e-9  # rounding may decide otherwise at the border itself
    np.testing.assert_array_equal(reject_by_false_discovery(p, rate)[clear], (adjusted <= rate)[clear])


def test_false_discoveries_decide_the_kinds_anew() -> None:
    arrays: dict[str, Any] = {name: np.full(4, 0.5) for name in ARRAYS if name not in ("label", "kind")}
    arrays |= {"p_combined": np.array([0.001, 0.002, 0.04, 0.9]), "p_covariate": np.array([0.001, 0.3, 0.01, 0.001])}
    verdicts = Verdicts(label=np.zeros(4, int), kind=np.full(4, "concept"), **arrays)
    # two are below their thresholds of .0125 and .025; the third (.04) is above .0375
    assert verdicts.control_false_discoveries(0.05).kind.tolist() == [KINDS[1], KINDS[2], KINDS[0], KINDS[0]]
    with pytest.raises(ValueError, match="`rate` to be between 0 and 1"):
        verdicts.control_false_discoveries(1.5)
