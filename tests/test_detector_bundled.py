"""The detector that comes with the package, and the words of README.md and docs/detector.md as they are written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from shiftprism import Detector
from shiftprism.cli import main
from shiftprism.datasets import CIFAR10_NAMES, load
from shiftprism.detector import BUNDLED, find_bundled
from shiftprism.verdicts import KINDS, Verdict
from trained import train_on_digits

ROOT = Path(__file__).parents[1]


def write_photograph(path: Path) -> None:
    """A picture of 200 × 150 pixels with a sky, a sea and a dark shape between them."""
    pixels = np.zeros((150, 200, 3), np.uint8)
    pixels[:90] = np.linspace((120, 170, 230), (200, 220, 240), 90)[:, None]
    pixels[90:] = np.linspace((40, 80, 120), (20, 50, 80), 60)[:, None]
    pixels[75:95, 50:150] = (60, 50, 50)
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize("name", BUNDLED)
def test_it_is_small_and_stored_in_half_precision(name: str) -> None:
    folder = find_bundled(name)
    assert folder is not None
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 4_000_000
    assert json.loads((folder / "detector.json").read_text())["precision"] == "float16"
    detector = Detector.load(name)
    assert detector.names == CIFAR10_NAMES
    assert detector.calibrated
    assert detector.classifier is not None
    tensors = [tensor for tensor in detector.classifier.state_dict().values() if tensor.is_floating_point()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    # rounded before it was fitted: half precision holds every weight; heads compute in single precision in any case
    backbone = [tensor for tensor in detector.classifier.backbone.state_dict().values() if tensor.is_floating_point()]
    assert all(torch.equal(tensor, tensor.half().float()) for tensor in backbone)
    assert len(detector.held.style) >= 1000


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cifar10").mkdir()  # of images, say
    assert Detector.load("cifar10").names == CIFAR10_NAMES
    Detector.load("cifar10").at(0.2).save("cifar10")
    assert Detector.load("cifar10").false_alarm == 0.2


def test_its_promise_holds_on_real_test_images() -> None:
    """The held-out images are of the training part; test images are like them."""
    try:
        test = load("cifar10", "test")
    except FileNotFoundError:
        pytest.skip("CIFAR-10 is not here")
    detector = Detector.load("cifar10")
    count = 1500
    flagged = int((detector(test.images[:count]).kind != KINDS[0]).sum())
    # a Beta-binomial with 2,000 held-out images: four standard deviations
    n = len(detector.held.style)
    deviation = (0.05 * 0.95 * count * (1 + count / n)) ** 0.5
    assert abs(flagged - 0.05 * count) < 4 * deviation


def test_the_first_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """README: `shiftprism score cifar10 photo.jpg`."""
    monkeypatch.chdir(tmp_path)
    write_photograph(Path("photo.jpg"))
    (line,) = re.findall(r"^shiftprism (score cifar10 \S+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    printed = capsys.readouterr().out
    assert stop.value.code in (0, 3)
    assert re.search(r"photo\.jpg: .*\(p = [\d.e-]+\)\.", printed)


def test_the_two_commands_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier, _ = train_on_digits("alpha-beta")
    classifier.save("my-model")
    data = load("digits", "test").only(classifier.names)
    for number, (image, label) in enumerate(zip(data.images, data.labels.tolist(), strict=True)):
        folder = Path("held-out", data.names[label]) if number < 300 else Path("new-images")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(folder / f"{number}.png")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^shiftprism ((?:fit|score) [^#\n]*(?:held-out|new-images)[^#\n]*)", text, re.M)
    assert [line.split()[0] for line in lines] == ["fit", "score"]
    codes = []
    for line in lines:
        with pytest.raises(SystemExit) as stop:
            main(line.split())
        codes.append(stop.value.code)
    printed = capsys.readouterr().out
    assert codes[0] == 0
    assert codes[1] in (0, 3)
    assert "300 images of held-out: 120 to fit, 60 for ranks inside the combination, 120 for the p-values" in printed
    assert re.search(r"concept score: \w+ \(first of \d+: AUROC ", printed)
    assert "promise: at most 5% false alarms, from 120 images" in printed
    assert "calibration: NLL " in printed
    rows = Path("verdicts.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + len(data.images) - 300


class Net(nn.Module):
    """A network of the shape that README's lines expect; a function of the mean colour, so that it knows something."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(self.body(images))
        return logits


def test_the_readmes_five_lines_end_in_a_verdict() -> None:
    torch.manual_seed(0)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line]) == 5
    images = (torch.rand(120, 3, 8, 8) * 255).to(torch.uint8)
    said: list[object] = []
    names: dict[str, object] = {
        "model": Net().eval(),
        "images": images,
        "labels": torch.arange(120) % 10,
        "new_images": images[:3],
        "mean": [0.5] * 3,
        "std": [0.2] * 3,
        "print": said.append,
    }
    exec(code, names)
    (verdict,) = said
    assert isinstance(verdict, Verdict)
    assert str(verdict).endswith(").")


def test_a_damaged_bundle_is_refused(tmp_path: Path) -> None:
    import shutil

    folder = find_bundled("cifar10")
    assert folder is not None
    shutil.copytree(folder, tmp_path / "copy")
    weights = tmp_path / "copy/model/weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ValueError, match="changed"):
        Detector.load(tmp_path / "copy")


EXPLAIN: list[Callable[[str], bool]] = [
    lambda page: "<script src" not in page and "http://" not in page.replace("http://www.w3.org/2000/svg", ""),
    lambda page: page.count("data:image/png;base64,") == 2,  # the picture, and what the model sees of it
    lambda page: page.count('class="held"') == 500,
]


def test_a_page_explains_a_photograph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photograph(Path("photo.jpg"))
    with pytest.raises(SystemExit) as stop:
        main(["explain", "cifar10", "photo.jpg", "--to", "page.html"])
    assert stop.value.code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    sentence = capsys.readouterr().out.splitlines()[0]
    assert sentence in page
    for holds in EXPLAIN:
        assert holds(page)
    with pytest.raises(SystemExit) as stop:
        main(["explain", "cifar10", "page.html"])
    assert stop.value.code == 1
    assert "Expected IMAGE to be an image file but got page.html" in capsys.readouterr().err
