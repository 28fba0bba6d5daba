"""`shiftprism score` with an exported .onnx file: the same rows as with the detector that is in it."""

import csv
from pathlib import Path

import pytest
from PIL import Image

from exported import Exported
from shiftprism.cli import main


def test_an_exported_detector_scores_the_same_files(
    exported_digits: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = exported_digits
    made.detector.save("detector")
    Path("digits.onnx").write_bytes(made.path.read_bytes())
    Path("photos").mkdir()
    for number, image in enumerate(made.images[150:250]):
        Image.fromarray(image[0].numpy()).convert("RGB" if number % 2 else "L").save(f"photos/{number:03}.png")
    Path("photos/broken.png").write_bytes(b"broken")
    rows = {}
    for name, file in (("detector", "torch.csv"), ("digits.onnx", "onnx.csv")):
        with pytest.raises(SystemExit) as stop:
            main(["score", name, "photos", "--to", file, "--false-alarm", "0.1"])
        assert stop.value.code == 5
        with Path(file).open(encoding="utf-8", newline="") as lines:
            rows[file] = list(csv.DictReader(lines))
    pairs = list(zip(rows["torch.csv"], rows["onnx.csv"], strict=True))
    assert len(pairs) == 101
    for one, other in pairs:
        assert [one[name] for name in ("path", "label", "problem", "detector")] == [
            other[name] for name in ("path", "label", "problem", "detector")
        ]
        if not one["problem"]:
            assert float(one["style"]) == pytest.approx(float(other["style"]), abs=2e-3)
    assert sum(one["kind"] != other["kind"] for one, other in pairs) <= 1  # ranks may tie by rounding
    capsys.readouterr()
    # the detector is the same, so its rows may be continued
    with pytest.raises(SystemExit):
        main(["score", "digits.onnx", "photos", "--to", "torch.csv", "--false-alarm", "0.1"])
    assert "101 of 101 images are in torch.csv already." in capsys.readouterr().out
