"""tools/head_trial.py: its numbers are scikit-learn's, its tables name every run, and its commands exist."""

import argparse
import shlex
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score

import head_trial
from head_trial import NAMES, describe, make_tables, measure, read_run
from shiftprism.classifier import predict
from shiftprism.datasets import Dataset
from shiftprism.heads import HEADS
from shiftprism.report import to_markdown
from shiftprism.scores import energy
from shiftprism.shifts import covariate
from shiftprism.training import PRESETS
from trained import digits, train_on_digits, unseen_digits


def test_tables_of_digits(tmp_path: Path) -> None:
    classifier, _ = train_on_digits("alpha-beta")
    known, clean = digits("train").rows(slice(0, 200)), digits("test").rows(slice(0, 150))
    unseen = unseen_digits()[:150]
    sets = {"unseen": Dataset(unseen, torch.zeros(len(unseen), dtype=torch.int64), ("unseen",))}
    shifts = list(covariate(clean, ["gaussian_noise", "motion_blur"], [5]))
    sets |= {describe(shift): shift.make() for shift in shifts}
    corrupted = [describe(shift) for shift in shifts]
    assert corrupted == ["gaussian_noise 5", "motion_blur 5"]
    measured = measure(classifier, known, clean, sets, corrupted, tmp_path / "cache")
    assert measured == measure(classifier, known, clean, sets, corrupted, tmp_path / "cache")
    assert measured == measure(classifier, known, clean, sets, corrupted)

    inside, outside = (predict(classifier, data)[0] for data in (clean, sets["motion_blur 5"]))
    values = torch.cat([energy(inside), energy(outside)])
    truth = torch.cat([torch.ones(inside.N), torch.zeros(outside.N)])
    assert measured.auroc["energy"]["motion_blur 5"] == pytest.approx(roc_auc_score(truth, values))
    assert measured.accuracy["clean"] == pytest.approx((inside.predictions == clean.labels).float().mean().item())
    assert "unseen" not in measured.accuracy  # its classes are not the model's

    accuracy, areas = make_tables({"one": measured, "two": measured}, corrupted)
    assert [len(accuracy.body), len(areas.body)] == [2, 2 * len(NAMES)]
    assert areas.head == ["score", "run", "unseen", "corrupted", *corrupted]
    (row,) = [line for line in to_markdown(areas).splitlines() if line.startswith("| energy | two |")]
    unseen_area, mean, noise, blur = (float(cell) for cell in row.split("|")[3:-1])
    assert unseen_area == pytest.approx(100 * measured.auroc["energy"]["unseen"], abs=0.051)
    assert mean == pytest.approx((noise + blur) / 2, abs=0.11)


def test_a_run_has_a_name() -> None:
    assert read_run("plain=runs/a=b") == ("plain", Path("runs/a=b"))
    for word in ("runs/plain", "=runs/plain", "plain="):
        with pytest.raises(argparse.ArgumentTypeError, match=r"Expected `run` to be NAME=RUN but got"):
            read_run(word)


def test_the_commands_are_those_of_the_trial() -> None:
    """Three ways, each with and without PixMix, and the two to compare with; all of twelve epochs."""
    assert head_trial.__doc__ is not None
    lines = head_trial.__doc__.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line.strip().startswith("shiftprism train")]
    flags = [dict(zip(words[2::2], words[3::2], strict=True)) for words in commands]
    assert len({flag["--out"] for flag in flags}) == 8
    ways = {(flag["--head"], flag.get("--rotation"), PRESETS[flag["--preset"]].pixmix > 0) for flag in flags}
    heads = [("logit-norm", None), ("t2f-norm", None), ("vanilla", "0.5"), ("vanilla", None)]
    assert ways == {(*way, mixed) for way in heads for mixed in (False, True)}
    assert {PRESETS[flag["--preset"]].epochs for flag in flags} == {12}
    assert {flag["--head"] for flag in flags} <= set(HEADS)
