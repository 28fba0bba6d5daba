"""The error boundary: whatever goes wrong is a line or two on standard error, with an exit code that says so."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from monitor_examples import draw_stream, make_reference
from shiftprism import calibrators, scores
from shiftprism._npz import DamagedFile, open_zip
from shiftprism.calibrators import Temperature
from shiftprism.classifier import Classifier
from shiftprism.cli import main
from shiftprism.datasets import load
from shiftprism.monitor import Monitor
from shiftprism.outputs import Outputs
from shiftprism.scores import Mahalanobis
from shiftprism.store import MonitorFold, make_observations, monitor_to_bytes, open_store


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def shiftprism(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The console script in this process, in an empty folder; nothing may come out of `main` but an exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def run(*words: object) -> Ended:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        assert isinstance(stop.value.code, int)
        printed = capsys.readouterr()
        for text in ("Traceback", "[Errno", "<_io.", "allow_pickle"):
            assert text not in printed.err
        return Ended(stop.value.code, printed.out, printed.err)

    return run


def assert_one_line(ended: Ended, *parts: str) -> None:
    assert ended.code == 1, ended
    assert ended.err.startswith("shiftprism: ")
    assert ended.err.count("\n") == 1, ended.err
    for part in parts:
        assert part in ended.err, ended.err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Classifier.build("digits", "alpha-beta", load("digits", "test").names, channels=1).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("words", [["dmeo"], ["train", "--foo"], ["train", "--epochs", "x"], ["claims"], ["data", "x"]])
def test_a_wrong_command_is_two_lines(shiftprism: Run, words: list[str]) -> None:
    ended = shiftprism(*words)
    assert ended.code == 2
    message, advice = ended.err.splitlines()
    assert message.startswith("shiftprism: ")
    assert advice.startswith("try: shiftprism")
    assert advice.endswith("--help")


def test_an_unexpected_error_is_one_line_that_names_the_file_of_its_traceback(
    shiftprism: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("shiftprism.heads.describe_heads", fail)
    ended = shiftprism("list", "heads")
    assert_one_line(ended, "KeyError", "report")
    (file,) = Path.cwd().glob("shiftprism-*.txt")
    assert str(file) in ended.err
    assert "Traceback" in file.read_text()
    assert "a bug" in file.read_text()


def test_interrupted(shiftprism: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shiftprism.heads.describe_heads", stop)
    assert shiftprism("list", "heads").code == 130


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("train --held-out 3", "--held-out"),
        ("train --data nosuch", "--data"),
        ("train --config settings.toml", "--config"),
        ("corrupt nosuch --to out", "SRC"),
        ("data show nosuch --to a.png", "NAME"),
        ("data get nosuch", "NAME"),
        ("benchmark --suite digits --corrupted-images 3", "--corrupted-images"),
        ("benchmark --data nosuch --hold-out a", "--data"),
        ("calibrate nosuch", "RUN"),
        ("report . --format word", "--format"),
    ],
)
def test_an_error_names_the_flag_that_was_typed(shiftprism: Run, words: str, flag: str) -> None:
    Path("settings.toml").write_text("epochs = \n")
    assert_one_line(shiftprism(*words.split()), f"Expected {flag} ")


def test_an_error_of_the_operating_system_has_a_file_and_no_number(shiftprism: Run) -> None:
    Path("file").write_text("in the way")
    assert_one_line(shiftprism("demo", "--to", "file"), "file: File exists")
    assert_one_line(shiftprism("train", "--config", "nosuch.toml"), "--config nosuch.toml: No such file")


def test_a_diverging_run(shiftprism: Run) -> None:
    assert_one_line(shiftprism("train", "--preset", "smoke", "--rate", "1e9", "--out", "run"), "smaller rate")


EDITS: list[Callable[[dict[str, Any]], object]] = [
    *(lambda about, value=value: about["recipe"]["arguments"].update(channels=value) for value in (1.0, "1", 10**9)),
    lambda about: about["recipe"]["arguments"].update(channels=10**30),
    lambda about: about["recipe"]["arguments"].update(colour=True),
    lambda about: about["recipe"]["arguments"].pop("channels"),
    lambda about: about["recipe"].update(backbone=[]),
    lambda about: about["recipe"].update(head={}),
    lambda about: about["recipe"].update(head="nosuch"),
    *(lambda about, value=value: about.update(names=value) for value in (7, None, ["a"], [1] * 10, list("0123456788"))),
    *(lambda about, value=value: about.update(recipe=value) for value in ({}, "x", {"backbone": "digits"})),
    *(lambda about, value=value: about.update(image_size=value) for value in (8, [8], [0, 8], [8.0, 8], "8x8")),
    lambda about: about.pop("weights"),
    lambda about: about.update(weights=7),
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_model_is_refused_before_it_is_built(
    shiftprism: Run, model: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    about = json.loads((model / "model.json").read_text())
    edit(about)
    (model / "model.json").write_text(json.dumps(about))
    # "digits" is the backbone's name, too
    assert_one_line(shiftprism("calibrate", model, "--data", "digits"), "Expected RUN ", str(model))


def test_a_model_file_that_is_nested_without_end(shiftprism: Run, model: Path) -> None:
    (model / "model.json").write_text("[" * 100_000)
    assert_one_line(shiftprism("calibrate", model, "--data", "digits"), "model.json")


def write_odd_npz(kind: str, **arrays: Any) -> None:
    """a.npz with arrays that claim too much, hold objects, or are cut; or a pipe of that name."""
    np.savez("a.npz", **arrays)
    if kind == "bomb":
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 99), }"
        array = b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + bytes(1200)
        with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in arrays:
                archive.writestr(f"{name}.npy", array)
    elif kind == "objects":
        np.savez("a.npz", **dict.fromkeys(arrays, np.array([{}], dtype=object)))  # type: ignore[arg-type]
    elif kind == "cut":
        Path("a.npz").write_bytes(Path("a.npz").read_bytes()[:-40])
    else:
        Path("a.npz").unlink()
        os.mkfifo("a.npz")


@pytest.mark.parametrize("kind", ["bomb", "objects", "cut", "pipe"])
def test_arrays_that_claim_or_hold_what_they_should_not(shiftprism: Run, kind: str) -> None:
    write_odd_npz(kind, logits=np.zeros((100, 3), np.float32), labels=np.arange(100) % 3)
    assert_one_line(shiftprism("calibrate", "--logits", "a.npz"), "--logits ", "a.npz")


@pytest.mark.parametrize("kind", ["bomb", "objects", "cut", "pipe"])
def test_word_vectors_that_claim_or_hold_what_they_should_not(shiftprism: Run, kind: str) -> None:
    write_odd_npz(kind, words=np.array(["cat"]), vectors=np.zeros((1, 3), np.float32))
    np.savez("near.npz", images=np.zeros((5, 8, 8), np.uint8), labels=np.zeros(5, int), names=np.array(["cat"]))
    words = "data show digits --shift concept-splits --near near.npz --vectors a.npz --groups 1 --to a.png"
    assert_one_line(shiftprism(*words.split()), "--vectors ", "a.npz")


def test_a_pipe_among_photographs_of_frost(shiftprism: Run) -> None:
    Path("photographs").mkdir()
    os.mkfifo("photographs/1.png")
    words = "corrupt digits --only frost --to out --frost photographs"
    assert_one_line(shiftprism(*words.split()), "Expected --frost ", "photographs/1.png (this is a pipe")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("data show digits --first 100000 --to a.png", "--first"),
        ("data check --root nosuch", "--root"),
        ("benchmark --suite digits --models ,", "--models"),
        ("calibrate --logits one.npz", "Expected --logits to be a file of two classes or more but got one.npz with 1"),
        ("report nosuch", "Expected RESULTS to be"),
        ("train --momentum 2", "--momentum"),
        ("train --data notes.txt", "a file of another kind"),
        ("train --data pipe", "a pipe"),
        ("train --config pipe", "--config pipe: this is a pipe"),
        ("calibrate --logits /dev/zero", "a device"),
        ("benchmark --data images --size 8", "not in an image format we read"),
        ("benchmark --suite digits --cluster localhost:1", "--cluster"),
        ("benchmark --suite digits --cluster nowhere", "--cluster"),
    ],
)
def test_odd_input_is_one_line(shiftprism: Run, words: str, part: str) -> None:
    Path("notes.txt").write_text("x")
    os.mkfifo("pipe")
    np.savez("one.npz", logits=np.zeros((60, 1)), labels=np.zeros(60, np.int64))
    Path("images/a").mkdir(parents=True)
    Path("images/a/1.heic").write_bytes(b"x")
    if "--cluster" in words:
        pytest.importorskip("ray")
    assert_one_line(shiftprism(*words.split()), part)


def test_a_cluster_that_does_not_run(shiftprism: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str, log_to_driver: bool) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    assert_one_line(
        shiftprism("benchmark", "--suite", "digits", "--cluster", "auto"), "Expected --cluster ", "ray start"
    )
    assert not Path("benchmark-results").exists()


@pytest.mark.slow
def test_ray_says_that_no_cluster_runs(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = "-m shiftprism benchmark --suite digits --models vanilla --seeds 1 --cluster auto"
    place = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"RAY_TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *words.split()], cwd=tmp_path, env=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("shiftprism: Expected --cluster "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_an_empty_word_is_no_default(shiftprism: Run) -> None:
    assert_one_line(shiftprism("benchmark", "--suite", "digits", "--models", ""), "--models")


def test_a_model_of_other_channels_or_another_size(shiftprism: Run, model: Path) -> None:
    classifier = Classifier.load(model)
    for images in (np.zeros((20, 8, 8, 3), np.uint8), np.zeros((20, 9, 9), np.uint8)):
        classifier.image_size = (8, 8)
        classifier.save(model)
        np.savez("mine.npz", images=images, labels=np.arange(20) % 10, names=np.array(classifier.names))
        # "model" stands in the advice, too, and is no flag's value there
        ended = shiftprism("calibrate", "model", "--data", "mine.npz", "--split", "all")
        assert_one_line(ended, "Expected --data to be of ")


def test_runs_are_checked_against_the_data_before_any_work(shiftprism: Run, tmp_path: Path) -> None:
    names = tuple("0123456")
    Classifier.build("digits", "vanilla", names, channels=3).save(tmp_path / "colour")
    Classifier.build("digits", "vanilla", names[:5], channels=1).save(tmp_path / "five")
    for run in ("colour", "five"):
        assert_one_line(shiftprism("benchmark", "--suite", "digits", "--runs", run, "--out", "out"), "--runs", run)
        assert not Path("out/suite.json").exists()
        assert not Path("out/shifted").exists()


def test_the_result_of_another_program(shiftprism: Run) -> None:
    words = ("train", "--preset", "smoke", "--epochs", "1", "--out", "run")
    assert shiftprism(*words).code == 0
    Path("run/result.json").write_text('{"score": 1}')
    assert_one_line(shiftprism(*words, "--resume"), "result.json", "test_accuracy")


@pytest.mark.parametrize("edit", [{"test_images": 10**30}, {"test_images": 7.0}, {"test_accuracy": 0.51234}])
def test_a_result_that_no_run_can_have(shiftprism: Run, edit: dict[str, float]) -> None:
    words = ("train", "--preset", "smoke", "--epochs", "1", "--out", "run")
    assert shiftprism(*words).code == 0
    result = json.loads(Path("run/result.json").read_text())
    Path("run/result.json").write_text(json.dumps(result | edit))
    assert_one_line(shiftprism(*words, "--resume"), "result.json with an accuracy of")
    Path("run/result.json").write_text(json.dumps(result | {"test_accuracy": 1.0}))
    assert_one_line(shiftprism(*words, "--resume"), "result.json, which was changed")
    Path("run/result.json").write_text(json.dumps(result))
    assert shiftprism(*words, "--resume").code == 0


def test_a_model_without_a_recipe_names_its_folder(shiftprism: Run, model: Path) -> None:
    about = json.loads((model / "model.json").read_text())
    del about["recipe"]
    (model / "model.json").write_text(json.dumps(about))
    assert_one_line(shiftprism("calibrate", model, "--data", "digits"), "Expected RUN ", str(model))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with 20 observations that its monitor has seen."""
    path = tmp_path / "store.sqlite"
    verdicts = draw_stream(0, 20)
    with open_store(str(path)) as opened:
        start = monitor_to_bytes(Monitor(make_reference()))
        stream = opened.open_stream("mine", "a" * 64, ("a", "b", "c"), calibrated=True, state=start)
        ids = [f"{number:032x}" for number in range(20)]
        opened.append(make_observations(verdicts, ids, stream.number, "request", 1000.0))
        opened.fold(stream, MonitorFold())
    return path


def test_a_damaged_monitor_in_a_store(shiftprism: Run, store: Path) -> None:
    assert shiftprism("store", "list", "--store", store).code == 0
    content = store.read_bytes()
    store.write_bytes(content.replace(b"shiftprism-monitor-1", b"shiftprism-monitor-2"))
    for command in ("list", "check"):
        assert_one_line(shiftprism("store", command, "--store", store), str(store), "state of a monitor is damaged")


def test_a_monitor_that_differs_from_its_observations(shiftprism: Run, store: Path) -> None:
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE observations SET style = style - 1")
    ended = shiftprism("store", "check", "--store", store)
    assert_one_line(ended, str(store), "1 of 1 monitors differ from a replay")
    assert "DIFFERS" in ended.out


def test_a_score_of_an_unknown_kind_names_its_folder(tmp_path: Path) -> None:
    Mahalanobis.fit(Outputs.from_logits(torch.randn(60, 3)), torch.arange(60) % 3, space="logits").save(tmp_path / "s")
    about = json.loads((tmp_path / "s/score.json").read_text())
    (tmp_path / "s/score.json").write_text(json.dumps(about | {"score": {"a": 1}}))
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 's'} of {{'a': 1}}")):
        scores.load(tmp_path / "s")


def test_a_setting_of_a_score_or_calibrator_that_was_changed(tmp_path: Path) -> None:
    outputs, labels = Outputs.from_logits(torch.randn(60, 3)), torch.arange(60) % 3
    Mahalanobis.fit(outputs, labels, space="logits").save(tmp_path / "score")
    Temperature.fit(outputs, labels).save(tmp_path / "calibrator")
    for load_module, name, old, new in (
        (scores.load, "score", '"space": "logits"', '"space": "features"'),
        (calibrators.load, "calibrator", '"iterations": ', '"iterations": 1'),
    ):
        file = tmp_path / name / f"{name}.json"
        load_module(file.parent)
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
        with pytest.raises(ValueError, match=rf"{name}\.json, which was changed"):
            load_module(file.parent)


def test_a_name_in_a_zip_file_that_is_not_utf8(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("\u00e9.txt", "x")
    content = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(content.replace("\u00e9".encode(), b"\xff\xfe"))
    with pytest.raises(DamagedFile, match=r"a\.zip is damaged at byte"):
        open_zip(tmp_path / "a.zip")


def test_a_second_calibrator_does_not_replace_the_first(shiftprism: Run, model: Path) -> None:
    words = ("calibrate", model, "--data", "digits", "--split", "test", "--method", "temperature")
    assert shiftprism(*words).code == 0
    before = (model / "calibrators" / "temperature" / "calibrator.json").stat().st_mtime_ns
    assert_one_line(shiftprism(*words), "--out", "--force")
    assert (model / "calibrators" / "temperature" / "calibrator.json").stat().st_mtime_ns == before
    assert shiftprism(*words, "--force").code == 0


def test_a_report_does_not_replace_a_file(shiftprism: Run) -> None:
    rows = files("shiftprism.benchmark").joinpath("cifar10/cells/cifar10-vanilla-0/rows.jsonl")
    Path("rows.jsonl").write_bytes(rows.read_bytes())
    assert_one_line(shiftprism("report", "rows.jsonl", "--to", "rows.jsonl"), "--to", "--force")
    assert Path("rows.jsonl").read_bytes() == rows.read_bytes()
    assert shiftprism("report", "rows.jsonl", "--format", "csv", "--to", "tables").code == 0
    assert_one_line(shiftprism("report", "rows.jsonl", "--format", "csv", "--to", "tables"), "--to", "--force")
    assert shiftprism("report", "rows.jsonl", "--format", "csv", "--to", "tables", "--force").code == 0


def test_a_demo_does_not_replace_a_folder(shiftprism: Run) -> None:
    Path("demo/digits").mkdir(parents=True)
    Path("demo/digits/rows.jsonl").write_text("mine")
    assert_one_line(shiftprism("demo"), "--to", "demo/digits", "--force")
    assert Path("demo/digits/rows.jsonl").read_text() == "mine"
