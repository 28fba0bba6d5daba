"""`shiftprism monitor` and `shiftprism report --monitor`: lines in, states on disk, exit codes, kills."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from exported import Exported
from monitor_examples import draw_stream, make_reference
from shiftprism.cli import main
from shiftprism.cli.monitor import draw_status
from shiftprism.monitor import Monitor
from shiftprism.verdicts import Verdicts


def write_state(path: Path, **options: Any) -> Path:
    Monitor(make_reference(), **options).save(path)
    return path


def write_lines(path: Path, verdicts: Verdicts) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in verdicts.to_dicts()))
    return path


def run(*words: "str | Path") -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def test_lines_in_status_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = write_state(tmp_path / "state")
    usual, shifted = draw_stream(0, 500), draw_stream(1, 200, concept=-2)
    assert run("monitor", state, "--jsonl", write_lines(tmp_path / "a.jsonl", usual)) == 0
    first = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first[0]["observations"] == 0
    assert first[-1]["observations"] == 500
    assert run("monitor", state, "--jsonl", write_lines(tmp_path / "b.jsonl", shifted)) == 3
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    whole = Monitor(make_reference())
    whole.update(Verdicts.concat([usual, shifted]))
    assert last == json.loads(json.dumps(whole.status().to_dict()))
    assert (last["level"], last["kind"], last["trust"]) == ("alarm", "concept", False)
    assert run("monitor", state) == 3  # cron: only look
    assert run("monitor", state, "--reset", "replaced the camera") == 0
    assert Monitor.load(state).resets[0]["reason"] == "replaced the camera"


def test_a_separate_state_leaves_the_first_alone(tmp_path: Path) -> None:
    fresh, own = write_state(tmp_path / "fresh"), tmp_path / "own"
    lines = write_lines(tmp_path / "a.jsonl", draw_stream(0, 100))
    for _ in range(2):
        assert run("monitor", fresh, "--state", own, "--jsonl", lines) == 0
    assert Monitor.load(fresh).observations == 0
    assert Monitor.load(own).observations == 200


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3 of "),
        ('{"label": 1}', "line 3 of "),
        ("[]", "line 3 of "),
        ("[" * 100_000, "line 3 of "),
        (json.dumps(draw_stream(0, 1).to_dicts()[0] | {"label": 10**30}), "numbers and kinds"),
        (json.dumps(draw_stream(0, 1).to_dicts()[0] | {"confidence": 7.0}), "verdicts that a monitor takes"),
        (None, "numbers and kinds"),
    ],
)
def test_bad_lines(line: "str | None", message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, path = write_state(tmp_path / "state"), tmp_path / "a.jsonl"
    rows = [json.dumps(row) for row in draw_stream(0, 2).to_dicts()]
    bad = json.dumps(draw_stream(0, 1).to_dicts()[0] | {"kind": "odd"}) if line is None else line
    path.write_text("\n".join([*rows, bad]) + "\n")
    assert run("monitor", state, "--jsonl", path) == 1
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error
    assert error.startswith("shiftprism: Expected --jsonl ")
    assert Monitor.load(state).observations == 0


def test_a_line_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("monitor", write_state(tmp_path / "state"), "--jsonl", "/dev/zero") == 1
    assert "/dev/zero with a line of more than 16,777,216 bytes" in capsys.readouterr().err


def test_wrong_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = write_state(tmp_path / "state")
    assert run("monitor", state, "--watch", tmp_path) == 1
    assert "folder of a saved detector" in capsys.readouterr().err
    assert run("monitor", state, "--watch", tmp_path, "--jsonl", "-") == 1
    assert run("monitor", state, "--watch", tmp_path / "none") == 1
    capsys.readouterr()
    assert run("monitor", tmp_path / "detectr", "--watch", tmp_path) == 1
    assert "which is no folder; make one with shiftprism fit" in capsys.readouterr().err
    assert run("monitor", state, "--false-alarm", "0.01") == 0
    capsys.readouterr()
    for words in (["--false-alarm", "0.05"], ["--within-class"], ["--every", "2"], ["--run-length", "1000"]):
        assert run("monitor", state, *words) == 1  # a promise cannot change while it is kept
        assert f"Expected {words[0]} " in capsys.readouterr().err.replace("`", "")
    assert run("report") == 1
    assert run("report", "--monitor", tmp_path / "none") == 1


def fill_folder(folder: Path, images: Tensor, first: int) -> None:
    for number, image in enumerate(images, first):
        file = folder / f"{number:04}.png"
        Image.fromarray(image[0].numpy()).save(file)
        os.utime(file, ns=(number, number))


@pytest.mark.parametrize("form", ["folder", "onnx"])
def test_a_folder_is_watched(
    form: str, exported_digits: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images of a folder give the verdicts of the detector, once each, also when the command is started again."""
    if form == "folder":
        exported_digits.detector.save(tmp_path / "detector")
    source = tmp_path / "detector" if form == "folder" else exported_digits.path
    folder, state = tmp_path / "images", tmp_path / "state"
    folder.mkdir()
    words: list[str | Path] = ["monitor", source, "--watch", folder, "--once", "--state", state, "--json"]
    fill_folder(folder, exported_digits.images[:70], 0)
    assert run(*words) in (0, 3, 4)
    fill_folder(folder, exported_digits.images[70:100], 70)
    (folder / "broken.png").write_bytes(b"no image")
    assert run(*words) in (0, 3, 4)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    judged = [line for line in lines if "observation" in line]
    assert [line["observation"] for line in judged] == list(range(100))
    assert [line["file"] for line in judged] == [f"{number:04}.png" for number in range(100)]
    expected = exported_digits.detector(exported_digits.images[:100])
    assert np.allclose([line["style"] for line in judged], expected.style, atol=1e-3)
    assert [line["label"] for line in judged] == expected.label.tolist()
    assert [line["file"] for line in lines if "problem" in line] == ["broken.png"]
    assert Monitor.load(state).observations == 100


def test_the_live_view_draws() -> None:
    from rich.console import Console

    monitor = Monitor(make_reference())
    monitor.update(draw_stream(0, 400, style=-2))
    calm = Monitor(make_reference())
    calm.update(Verdicts.concat([draw_stream(1, 128), draw_stream(0, 128, style=-5)]))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(draw_status(monitor.status()))
    console.print(draw_status(calm.status(), calm.history()))
    text = console.export_text()
    assert "▁▁██" in text  # windows of 64: two usual ones, then all flagged
    assert "Alarm: the style of the images has shifted" in text
    assert "evidence of concept shift" in text
    assert "estimated accuracy" in text


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = Monitor(make_reference())
    monitor.update(draw_stream(0, 90))
    monitor.reset("<b>dirt</b>")
    monitor.update(draw_stream(1, 60, style=-2.5))
    monitor.save(tmp_path / "state")
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(150):
        file = folder / f"{number:03}.png"
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(file)
        os.utime(file, ns=(number, number))
    assert run("report", "--monitor", tmp_path / "state", "--images", folder) == 0
    page = (tmp_path / "monitor.html").read_text()
    assert "covariate shift) since about observation" in page
    assert "&lt;b&gt;dirt&lt;/b&gt;" in page
    assert page.count("<svg") == 3
    since = monitor.status().since
    assert since is not None
    assert f'alt="{since:03}.png"' in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")


class Feeder:
    """A process that feeds the command, reads what it acknowledges, and resumes from there after a kill."""

    def __init__(self, state: Path, rows: list[bytes]) -> None:
        self.state, self.rows, self.acknowledged = state, rows, 0

    def feed(self, limit: int, kill_after: float | None = None) -> None:
        """Run the command on at most `limit` rows not acknowledged yet, then end its input; or kill it so many seconds
        after its first line, its input still open, so that it never ends by itself."""
        words = [sys.executable, "-m", "shiftprism", "monitor", str(self.state), "--jsonl", "-"]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())["observations"]
        assert first >= self.acknowledged  # nothing acknowledged is lost
        self.acknowledged = first
        writer = threading.Thread(
            target=self._write, args=(process, self.rows[first : first + limit], kill_after is None)
        )
        writer.start()
        if kill_after is not None:
            threading.Timer(kill_after, process.send_signal, [signal.SIGKILL]).start()
        for line in process.stdout:
            self.acknowledged = json.loads(line)["observations"]
        assert process.wait() == (3 if kill_after is None else -signal.SIGKILL)  # 3: the stream ends in an alarm
        writer.join()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()

    @staticmethod
    def _write(process: "subprocess.Popen[bytes]", rows: list[bytes], close: bool) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            for start in range(0, len(rows), 7):
                process.stdin.write(b"".join(rows[start : start + 7]))
                process.stdin.flush()
                time.sleep(0.001)
            if close:
                process.stdin.close()


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """SHIFTPRISM_KILLS=50 is the long form. The state after the kills is that of a stream never stopped, to the bit."""
    kills, rng = int(os.environ.get("SHIFTPRISM_KILLS", "5")), random.Random(0)
    part = 300 * kills
    stream = Verdicts.concat([draw_stream(0, part), draw_stream(1, part, style=-1), draw_stream(2, part)])
    feeder = Feeder(write_state(tmp_path / "state"), [json.dumps(row).encode() + b"\n" for row in stream.to_dicts()])
    for _ in range(kills):
        feeder.feed(900, kill_after=rng.uniform(0.0, 0.4))
    assert 0 < feeder.acknowledged <= len(stream)
    feeder.feed(len(stream))
    whole = Monitor(make_reference())
    whole.update(stream)
    whole.save(tmp_path / "whole")
    assert (tmp_path / "state").read_bytes() == (tmp_path / "whole").read_bytes()
