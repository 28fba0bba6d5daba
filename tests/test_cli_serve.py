"""`shiftprism serve` and `shiftprism store` in processes of their own, on a real exported detector."""

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from exported import Exported
from postgres import Server
from served_digits import to_png
from serving_process import Client, Process, make_form
from serving_trial import kill_under_load
from shiftprism.cli import main
from shiftprism.runtime import load


@pytest.fixture(scope="module")
def pictures(exported_digits: Exported) -> list[bytes]:
    """Every fifth of the images, clean and noisy."""
    return [to_png(image) for image in exported_digits.images[::5]]


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """`serve` sends logs to standard error; tests that follow in this process should not."""
    root = logging.getLogger()
    loggers = [logging.getLogger(name) for name in ("shiftprism", "python_multipart", "uvicorn.error")]
    handlers, levels = root.handlers[:], [each.level for each in (root, *loggers)]
    yield
    root.handlers[:] = handlers
    for each, level in zip((root, *loggers), levels, strict=True):
        each.setLevel(level)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


def test_a_real_file_is_served_stored_and_exported(
    exported_digits: Exported, pictures: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The witnesses: the detector in torch that the file was made from, and the file itself without the service."""
    store = str(tmp_path / "store.sqlite")
    process = Process(f"mine={exported_digits.path}", store)
    client = Client(process.port)
    rows = []
    for first in range(0, len(pictures), 16):
        status, answer = client.predict(*make_form(pictures[first : first + 16]))
        assert status == 200, answer
        rows += answer["predictions"]
    images = exported_digits.images[::5]
    torch_verdicts, plain = exported_digits.detector(images), load(exported_digits.path)(images.numpy())
    assert [row["label"] for row in rows] == torch_verdicts.label.tolist()
    np.testing.assert_allclose([row["style"] for row in rows], torch_verdicts.style, atol=2e-3)
    np.testing.assert_allclose([row["p_combined"] for row in rows], plain.p_combined, atol=1e-6)
    assert sum(row["kind"] != kind for row, kind in zip(rows, plain.kind, strict=True)) <= 1  # rounding by batch size
    labels = {"labels": [{"id": row["id"], "label": row["name"]} for row in rows[:10]]}
    status, content = client.ask("POST", "/v1/labels", json.dumps(labels).encode(), Content_Type="application/json")
    assert (status, json.loads(content)) == (200, {"stored": 10, "unknown": []})
    client.close()
    assert process.stop() == 0, "SIGTERM is an orderly end"
    assert run("store", "check", "--store", store) == 0
    assert f"up to observation {len(rows)} equals a replay" in capsys.readouterr().out
    assert run("store", "list", "--store", store) == 0
    shown = capsys.readouterr().out
    assert f"{len(rows)} observations" in shown
    assert "10 of 10 labelled predictions are right" in shown
    assert run("store", "export", "--store", store, "--to", str(tmp_path / "all.jsonl")) == 0
    stored = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(each["id"], each["style"]) for each in stored] == [(row["id"], row["style"]) for row in rows]
    assert {each["model"] for each in stored} == {"mine"}


def test_small_answers_do_not_wait_for_acknowledgements() -> None:
    """asyncio switches Nagle's algorithm off where a socket names its protocol; with it, answers take 40 ms more."""
    from shiftprism.cli.serve import _listen
    from shiftprism.serving import Settings

    with _listen(Settings(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.slow
def test_killed_under_load_nothing_acknowledged_is_lost(
    exported_digits: Exported, pictures: list[bytes], tmp_path: Path
) -> None:
    """A short form of `tools/serving_trial.py kill`."""
    left = kill_under_load(exported_digits.path, str(tmp_path / "store.sqlite"), pictures, kills=1)
    assert left.acknowledged >= 16
    assert left.lost == 0
    assert left.replay_equal


@pytest.mark.slow
def test_a_killed_database_server_loses_nothing_either(
    exported_digits: Exported, pictures: list[bytes], postgres: Server
) -> None:
    where = postgres.make_database("killed_under_load")
    left = kill_under_load(exported_digits.path, where, pictures, kills=2, postgres=postgres)
    assert left.acknowledged >= 32
    assert left.lost == 0
    assert left.replay_equal


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["none.onnx"], "Expected MODELS to be files or folders but got none.onnx, where there is none"),
        (["words.onnx"], "Expected MODELS to be a file that shiftprism export wrote but got words.onnx"),
        (["empty"], "Expected MODELS to be files, or folders of detectors but got empty, which has no detector.json"),
        (["words.onnx", "words.onnx"], "Expected MODELS to be of different names but got words twice"),
        (["a/b=words.onnx"], "letters, digits, dots, dashes and underscores but got 'a/b'"),
        (["words.onnx", "--host", "0.0.0.0"], "Expected --host to be a loopback address where there are no tokens"),
        (["words.onnx", "--tokens", "missing"], "--tokens missing: No such file or directory"),
        (["words.onnx", "--tokens", "words.onnx"], "Expected --tokens to be one `name token` a line"),
        (["words.onnx", "--store", "mysql://x"], "Expected --store to be a path, sqlite:///path or postgresql://"),
        (["words.onnx", "--store", "empty"], "empty: this is a folder, not a file"),
        (["words.onnx", "--false-alarm", "2"], "Expected --false-alarm to be between 0 and 1 but got 2.0"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHIFTPRISM_TOKENS", raising=False)
    Path("words.onnx").write_text("these are words")
    Path("empty").mkdir()
    assert run("serve", "--port", "0", *words) == 1
    captured = capsys.readouterr()
    assert line in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_port_that_is_taken_makes_nothing(
    exported_digits: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert run("serve", str(exported_digits.path), "--port", str(port)) == 1
    words = f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --port or --host"
    assert capsys.readouterr().err == f"shiftprism: {words}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["onnxruntime", "fastapi", "uvicorn", "httptools", "prometheus_client"])
def test_a_missing_package_is_named_with_its_extra(
    module: str,
    exported_digits: Exported,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    assert run("serve", str(exported_digits.path), "--port", "0") == 1
    assert capsys.readouterr().err == f'shiftprism: `{module}` is not installed; run: pip install "shiftprism[serve]"\n'


def test_another_level_needs_another_store(
    exported_digits: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from shiftprism.serving import Service, Settings, load_model

    store = str(tmp_path / "store.sqlite")
    Service({"digits": exported_digits.path}, Settings(store=store), load_model).store.close()
    words = ["serve", str(exported_digits.path), "--port", "0", "--store", store, "--false-alarm", "0.05"]
    assert run(*words) == 1
    expected = "Expected --false-alarm to be 0.01, with which the monitor of digits began in this store but got 0.05"
    assert expected in capsys.readouterr().err
