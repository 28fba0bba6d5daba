"""Runs: killed at any moment they end with the same bits; on two processes they end with the same numbers."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from shiftprism.cli import app
from shiftprism.datasets import load
from shiftprism.training import PRESETS, Setup, Training, read_settings, resolve, run, split_held_out

SHORT = replace(PRESETS["smoke"], epochs=3)
DIGITS = Setup("digits", "digits", "alpha-beta", SHORT)
WORDS = ["--preset", "smoke", "--epochs", "3"]


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder / "run", DIGITS)
    return folder / "run"


def child(code: str, *words: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Python code in a process of its own, with one thread: as the tests themselves compute."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **changes}
    command = [sys.executable, "-c", "import torch; torch.set_num_threads(1)\n" + code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


TRAIN = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from shiftprism.training import PRESETS, Setup, run
digits = Setup("digits", "digits", "alpha-beta", replace(PRESETS["smoke"], epochs=3))
def die(): os.kill(os.getpid(), signal.SIGKILL)
"""
RESUME = "run(Path(sys.argv[1]), digits, resume=True)"
MID_EPOCH = """
def progress(now):
    if now.step == 40: die()  # of 3 epochs with 17 steps each
run(Path(sys.argv[1]), digits, progress=progress)
"""
MID_WRITE = """
replace_whole, count = os.replace, 0
def replace_(source, target):
    global count
    if str(target).endswith("state.safetensors"):
        count += 1
        if count == 2:  # the second epoch's state is written but has not taken its place
            with open(source, "r+b") as file: file.truncate(1000)
            die()
    replace_whole(source, target)
os.replace = replace_
run(Path(sys.argv[1]), digits)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("blow", "survives"), [(MID_EPOCH, 2), (MID_WRITE, 1)])
def test_a_killed_run_ends_with_the_same_bits(undisturbed: Path, tmp_path: Path, blow: str, survives: int) -> None:
    done = child(TRAIN + blow, str(tmp_path / "run"))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == survives
    again = child(TRAIN + RESUME, str(tmp_path / "run"))
    assert again.returncode == 0, again.stderr
    assert weights(tmp_path / "run") == weights(undisturbed)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in records] == [1, 2, 3]


@pytest.mark.slow
def test_a_kill_at_any_time_leaves_a_run_that_resumes(undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL from outside, at moments nobody chose; each time the same command runs again with --resume."""
    command = [sys.executable, "-m", "shiftprism", "train", *WORDS, "--out", str(tmp_path / "run"), "--resume"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for wait in (2.0, 3.0, 3.5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        time.sleep(wait)
        process.kill()
        process.wait()
    last = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert last.returncode == 0, last.stderr
    assert weights(tmp_path / "run") == weights(undisturbed)


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shiftprism", "train", "--preset", "smoke", "--epochs", "500"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "add --resume to the same command to resume" in output.replace("\n", " ")
    assert "Traceback" not in error


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_good_state(tmp_path: Path, undisturbed: Path) -> None:
    """No file may grow beyond 200 KB: the state of the first epoch cannot be written."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    done = child(limited + TRAIN + RESUME, str(tmp_path / "run"))
    assert done.returncode == 1
    assert "OSError" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "run").glob("*.part"))
    assert not list((tmp_path / "run").glob(".*.part"))
    again = child(TRAIN + RESUME, str(tmp_path / "run"))
    assert again.returncode == 0, again.stderr
    assert weights(tmp_path / "run") == weights(undisturbed)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


PREDICT = """
import sys
from pathlib import Path
import torch
from shiftprism import Classifier, predict
from shiftprism.datasets import load
from shiftprism.training import Processes
processes = Processes()
classifier = Classifier.load(sys.argv[1])
outputs, labels = predict(classifier, load("digits", "test").rows(slice(0, 101)))  # odd: one process has one more
assert outputs.N == 101, outputs
outputs.save(Path(sys.argv[2]) / f"{processes.rank}.safetensors", labels)
processes.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "batch", "rotation"),
    [
        ("alpha-beta", 76, 0),
        ("alpha-beta", 76, 0.5),  # 23 rotated images in the last step: 12 and 11
        ("cosine", 76, 0),
        ("hyper-free", 76, 0),
        ("sngp", 76, 0),
        ("duq", 301, 0),
    ],
)
def test_two_processes_agree_with_one(tmp_path: Path, head: str, batch: int, rotation: float) -> None:
    # one epoch at a small rate, for rounding grows from step to step (with DUQ's second derivatives most); 76 images a
    # step leave an odd last batch. With 75 and rotation a ReLU turns: one process differs as much from itself with
    # another memory format
    words = ["--preset", "smoke", "--epochs", "1", "--batch", str(batch), "--rate", "0.05", "--head", head]
    words += ["--rotation", str(rotation)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port"]
    alone = [sys.executable, "-m", "shiftprism", "train", *words, "--out", str(tmp_path / "one")]
    both = [*launch, str(free_port()), "-m", "shiftprism", "train", *words, "--out", str(tmp_path / "two")]
    for command in (alone, both):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name].double(), two[name].double(), rtol=1e-3, atol=2e-4, msg=name)
    first, second = (json.loads((tmp_path / name / "metrics.jsonl").read_text()) for name in ("one", "two"))
    assert first["accuracy"] == pytest.approx(second["accuracy"], abs=0.01)
    for name in ("loss", *(("rotation_loss", "rotation_accuracy") if rotation else ())):
        assert first[name] == pytest.approx(second[name], rel=1e-3 if "loss" in name else 0.02), name

    (tmp_path / "predict.py").write_text(PREDICT)
    command = [*launch, str(free_port()), str(tmp_path / "predict.py"), str(tmp_path / "one"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    from shiftprism import Classifier, Outputs, predict
    from shiftprism.datasets import load

    data = load("digits", "test").rows(slice(0, 101))
    expected, _ = predict(Classifier.load(tmp_path / "one"), data)
    for rank in (0, 1):
        outputs, labels = Outputs.load(tmp_path / f"{rank}.safetensors")
        assert labels is not None
        assert torch.equal(labels, data.labels)
        for a, b in zip(expected, outputs, strict=True):
            torch.testing.assert_close(a, b)


LEAVE = """
import sys
from pathlib import Path
from shiftprism.training import Processes, Setup, Training, run
processes = Processes()
run(Path(sys.argv[1]), Setup("digits", "digits", "alpha-beta", Training(epochs=1, batch=256)), processes=processes)
names = lambda: [comm.read_text().strip() for comm in Path("/proc/self/task").glob("*/comm")]
assert any("gloo" in name for name in names()), names()
processes.close()
assert not any("gloo" in name for name in names()), names()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the names of threads as Linux gives them")
def test_no_thread_of_the_others_outlives_close(tmp_path: Path) -> None:
    """One that did would abort the process now and then, when it wants the interpreter while that exits."""
    (tmp_path / "leave.py").write_text(LEAVE)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*launch, str(tmp_path / "leave.py"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_folder_in_use_is_not_overwritten(undisturbed: Path) -> None:
    before = weights(undisturbed)
    with pytest.raises(
        ValueError, match=r"Expected `out` to be a new folder but got .*, which holds a run; add --resume"
    ):
        run(undisturbed, DIGITS)
    with pytest.raises(ValueError, match=r"a finished one with rate 0\.5 for 0\.2"):
        run(undisturbed, DIGITS._replace(training=replace(SHORT, rate=0.5)), resume=True)
    assert weights(undisturbed) == before


def test_a_finished_run_is_returned(undisturbed: Path) -> None:
    done = run(undisturbed, DIGITS, resume=True)
    assert [entry["epoch"] for entry in done.history] == [1, 2, 3]
    assert 0.3 < done.result["test_accuracy"] <= 1
    assert done.result["test_images"] == 596


def test_other_settings_than_the_states_are_refused(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes((undisturbed / "state.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"Expected `training` to be what .* got epochs 9 for 3; rate 0\.1 for 0\.2"):
        run(tmp_path, DIGITS._replace(training=replace(SHORT, rate=0.1, epochs=9)), resume=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            {"format": "another"},
            r"a file of format shiftprism-training-1 but got FILE of format another",
        ),
        ({"history": "[{"}, r"a training state with its history but got FILE"),
        ({"training": None}, r"a training state with its training but got FILE \(KeyError"),
        ({"generator": None}, r"a training state with its generators but got FILE \(KeyError"),
        ({"random": torch.zeros(3)}, r"a training state with its generators but got FILE"),
        ({"network.mean": torch.zeros(3, 1, 1)}, r"fit the code but got FILE, where mean has shape"),
        ({"network.extra": torch.zeros(1)}, r"fit the code but got FILE, where extra is unknown"),
        (
            {"momentum.0": torch.zeros(1)},
            r"fit the code but got FILE, where momentum\.0 has shape \(1,\)",
        ),
    ],
)
def test_a_damaged_or_foreign_state_is_named(
    undisturbed: Path, tmp_path: Path, damage: dict[str, Any], message: str
) -> None:
    tensors = load_file(undisturbed / "state.safetensors")
    with safe_open(undisturbed / "state.safetensors", "pt") as file:
        metadata = file.metadata()
    for digest in ("digest", "digest of metadata"):  # or all would be refused as changed
        metadata.pop(digest)
    for name, value in damage.items():
        table: dict[str, Any] = metadata if name in metadata else tensors
        table.pop(name, None)
        if value is not None:
            table[name] = value
    save_file(tensors, tmp_path / "state.safetensors", metadata)
    message = message.replace("FILE", re.escape(str(tmp_path / "state.safetensors")))
    with pytest.raises(ValueError, match=f"Expected `path` to be .*{message}.*; remove it to start again") as caught:
        run(tmp_path, DIGITS, resume=True)
    assert "\n" not in str(caught.value)


def test_half_a_state_is_named(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes((undisturbed / "state.safetensors").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"a whole safetensors file but got .*state\.safetensors .*; remove it"):
        run(tmp_path, DIGITS, resume=True)


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "config.toml"])
def test_a_damaged_file_of_a_finished_run_is_named(undisturbed: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(undisturbed, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(b"\xff{")
    with pytest.raises(ValueError, match=rf"Expected `\w+` to be .* but got .*{name}"):
        run(tmp_path / "run", DIGITS, resume=True)


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        run(tmp_path / "file" / "run", DIGITS)


def test_settings_come_from_preset_file_and_flags_in_this_order(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('preset = "smoke"\nhead = "gsd"\nepochs = 2\nrate = 1\nclip = 1.0\n')
    words = ["train", "--config", str(tmp_path / "c.toml"), "--epochs", "1", "--no-channels-last"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run"), "--tensorboard"])
    assert done.exit_code == 0, done.output
    settings = read_settings(tmp_path / "run" / "config.toml")
    expected = {"head": "gsd", "epochs": 1, "rate": 1.0, "crop": 1, "channels_last": False}
    assert {name: settings[name] for name in expected} == expected
    assert list((tmp_path / "run" / "events").iterdir())
    # what was saved is itself a config that gives the same run
    words = ["train", "--config", str(tmp_path / "run" / "config.toml"), "--out", str(tmp_path / "b")]
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.output
    assert weights(tmp_path / "b") == weights(tmp_path / "run")


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"epoch": 3}, "Expected `config` to be made of epochs, batch, .* but got epoch"),
        ({"epochs": "three"}, "Expected `epochs` to be of type int but got 'three'"),
        ({"flip": 1}, "Expected `flip` to be of type bool but got 1"),
        ({"precision": "float8"}, "Expected `precision` to be one of auto, bfloat16, float32 but got 'float8'"),
    ],
)
def test_wrong_settings_are_named(layer: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve("smoke", layer)


def test_every_setting_has_a_reason_and_a_flag() -> None:
    from dataclasses import fields

    shown = CliRunner().invoke(app, ["train", "--help"]).output
    for field in fields(Training):
        assert field.metadata["help"]
        assert f"--{field.name.replace('_', '-')}" in shown


def test_the_papers_preset_is_the_papers() -> None:
    paper = PRESETS["paper"]
    assert (paper.epochs, paper.batch, paper.rate, paper.momentum, paper.weight_decay) == (200, 128, 0.1, 0.9, 5e-4)
    assert (paper.warmup, paper.nesterov, paper.crop, paper.flip) == (0, False, 4, True)
    assert (paper.held_out, paper.clip, paper.precision) == (0, 0, "float32")


@pytest.mark.parametrize(("gain", "chosen"), [(1.9, "bfloat16"), (1.1, "float32")])
def test_the_precision_is_what_was_measured_and_stays_so(
    gain: float, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanilla = Setup("digits", "digits", "vanilla", replace(SHORT, epochs=1, precision="auto"))
    monkeypatch.setattr("shiftprism.training._precision._speedup", lambda *_: gain)
    run(tmp_path / "run", vanilla)
    assert read_settings(tmp_path / "run" / "config.toml")["precision"] == chosen
    monkeypatch.setattr("shiftprism.training._precision._speedup", lambda *_: 1.9 if chosen == "float32" else 1.1)
    again = run(tmp_path / "run", vanilla, resume=True)
    assert len(again.history) == 1
    (tmp_path / "run" / "result.json").unlink()  # not finished after all: the state decides
    run(tmp_path / "run", vanilla, resume=True)
    assert read_settings(tmp_path / "run" / "config.toml")["precision"] == chosen


def test_the_held_out_images_are_a_tenth_of_every_class() -> None:
    """Drawn, not the first ones; the order stays, and nothing is in both parts."""
    data = load("digits", "train")
    learned, held = split_held_out("digits", 0.1)
    counts = torch.bincount(data.labels)
    assert torch.bincount(held.labels).tolist() == [round(0.1 * int(count)) for count in counts]
    assert (torch.bincount(held.labels) + torch.bincount(learned.labels)).tolist() == counts.tolist()
    places = {image.numpy().tobytes(): place for place, image in enumerate(data.images)}
    assert len(places) == len(data.images)
    found = [[places[image.numpy().tobytes()] for image in part.images] for part in (learned, held)]
    assert all(part == sorted(part) for part in found)
    assert sorted(found[0] + found[1]) == list(range(len(data.images)))
    assert int(data.order_in_class()[found[1]].max()) > 100
    assert torch.equal(split_held_out("digits", 0.1)[1].images, held.images)
