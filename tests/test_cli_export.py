"""`shiftprism export`: wrong words are one line that names the flag; nothing is computed before."""

from pathlib import Path

import pytest
from PIL import Image

from exported import Exported
from shiftprism import runtime
from shiftprism.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    with pytest.raises(SystemExit) as stop:
        main(["export", *words])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nothing", "--to", "a.onnx"], "Expected DETECTOR to be the folder of a detector but got 'nothing'"),
        (["digits", "--to", "a.txt"], "Expected --to to be a file that ends in .onnx but got a.txt"),
        (["digits", "--to", "a.onnx"], "Expected --size to be given but got None"),
        (
            ["digits", "--to", "a.onnx", "--precision", "int4"],
            "Expected --precision to be one of float16, float32, int8",
        ),
        (
            ["digits", "--to", "a.onnx", "--precision", "int8"],
            "Expected --data to be held-out images",
        ),
        (["digits", "--to", "a.onnx", "--data", "nosuch"], "nosuch"),
        (["digits", "--to", "there.onnx"], "there.onnx"),
    ],
)
def test_wrong_words_are_one_line(
    exported_digits: Exported,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    exported_digits.detector.save("digits")
    Path("there.onnx").write_text("mine")
    code, out, err = run(capsys, *words)
    assert code == 1
    assert line in " ".join(err.split())
    assert "Traceback" not in out + err
    assert Path("there.onnx").read_text() == "mine"
    assert not Path("a.onnx").exists()


@pytest.mark.slow
def test_int8_from_a_folder_of_classes(
    exported_digits: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from shiftprism.datasets import load

    monkeypatch.chdir(tmp_path)
    exported_digits.detector.save("digits")
    data = load("digits", "train")
    for number, (image, label) in enumerate(zip(data.images[:300], data.labels[:300].tolist(), strict=True)):
        folder = Path("held-out") / data.names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(folder / f"{number}.png")
    words = ["digits", "--to", "int8.onnx", "--precision", "int8", "--data", "held-out", "--size", "8"]
    with pytest.raises(SystemExit) as end:
        main(["export", *words])
    assert not end.value.code
    out = capsys.readouterr().out
    assert "in int8" in out
    assert "classes other than those of the network in float32:" in out
    exported = runtime.load("int8.onnx")
    assert exported.about.precision == "int8"
    assert exported.calibrated
    assert exported.about.held_out == (120,)
