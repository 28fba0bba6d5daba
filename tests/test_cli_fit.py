"""`shiftprism fit`: folders with and without classes, files that do not fit, and what is refused before any work."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from shiftprism.classifier import Classifier, predict
from shiftprism.cli import main
from shiftprism.datasets import load
from shiftprism.detector import Detector
from shiftprism.outputs import Outputs
from shiftprism.scores import energy


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def shiftprism(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Ended:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        assert isinstance(stop.value.code, int)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Ended(stop.value.code, printed.out, printed.err)

    return run


def save_model(channels: int = 1) -> Classifier:
    names = load("digits", "train").names
    classifier = Classifier.build("digits", "vanilla", names, channels).eval()
    classifier.image_size = (8, 8)
    classifier.save("model")
    return classifier


def write_digits(folder: str, count: int, by_class: bool) -> None:
    data = load("digits", "train")
    for number, (image, label) in enumerate(zip(data.images[:count], data.labels.tolist(), strict=False)):
        place = Path(folder, data.names[label] if by_class else "")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(place / f"{number:04}.png")


def test_a_flat_folder_has_no_classes_and_a_bad_file_is_named(shiftprism: Run) -> None:
    save_model()
    write_digits("photos", 70, by_class=False)
    Path("photos/broken.png").write_bytes(b"\x89PNG nothing")
    ended = shiftprism("fit", "model", "--data", "photos", "--out", "detector", "--concept", "energy")
    assert ended.code == 0, ended.err
    assert "70 images of photos: 28 to fit, 14 for ranks inside the combination, 28 for the p-values" in ended.out
    assert "uncalibrated: the images have no classes" in ended.out
    assert "left out: photos/broken.png: " in ended.out
    detector = Detector.load("detector")
    assert not detector.calibrated
    assert len(detector.held.style) == 28
    ended = shiftprism("fit", "model", "--data", "photos", "--out", "detector", "--concept", "energy")
    assert ended.code == 1
    assert "--out" in ended.err
    assert "--force" in ended.err


@pytest.mark.slow
def test_precision_is_part_of_a_detector(shiftprism: Run) -> None:
    """Its network is saved in it, its ranks were taken in it, and the fingerprint of the network is another."""
    fine = save_model()
    write_digits("photos", 70, by_class=False)
    words = ("--data", "photos", "--out", "coarse", "--concept", "energy", "--precision", "bfloat16")
    assert shiftprism("fit", "model", *words).code == 0
    assert json.loads(Path("coarse/detector.json").read_text())["precision"] == "bfloat16"
    detector = Detector.load("coarse")
    coarse = detector.classifier
    assert coarse is not None
    assert coarse.mean.dtype == torch.bfloat16
    assert coarse.fingerprint() != fine.fingerprint()
    images = load("digits", "train").images[:70]
    ranks = set(detector.held.concept.tolist())
    assert ranks <= set(energy(predict(coarse, images)[0]).tolist())
    assert not ranks <= set(energy(predict(fine, images)[0]).tolist())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_a_machine_that_cannot_compile_says_so_once(shiftprism: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if the error of the compiler becomes the reason of each file."""

    def fail(self: Classifier, images: torch.Tensor) -> Outputs:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\nin a long text")

    save_model()
    write_digits("photos", 70, by_class=False)
    assert shiftprism("fit", "model", "--data", "photos", "--out", "plain", "--concept", "energy").code == 0
    monkeypatch.setattr(Classifier, "outputs", fail)
    for words in (("fit", "model", "--data", "photos", "--out", "other"), ("score", "plain", "photos")):
        ended = shiftprism(*words, "--compile")
        assert ended.code == 1
        assert "Expected --compile to be left out without a C++ compiler but got a machine where" in ended.err
        assert "No working C++ compiler found in a long text" in ended.err
        assert ended.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_a_compiled_network_gives_the_same_verdicts(shiftprism: Run) -> None:
    save_model()
    write_digits("photos", 70, by_class=False)
    assert shiftprism("fit", "model", "--data", "photos", "--out", "plain", "--concept", "energy").code == 0
    words = ("--out", "compiled", "--concept", "energy", "--compile")
    assert shiftprism("fit", "model", "--data", "photos", *words).code == 0
    plain, compiled = Detector.load("plain"), Detector.load("compiled")
    torch.testing.assert_close(compiled.held.concept, plain.held.concept, rtol=1e-4, atol=1e-5)
    codes = [
        shiftprism("score", "plain", "photos", "--to", file, *more).code
        for file, more in (("a.jsonl", ()), ("b.jsonl", ("--compile",)))
    ]
    assert codes[0] == codes[1]
    a, b = ([json.loads(line) for line in Path(file).read_text().splitlines()] for file in ("a.jsonl", "b.jsonl"))
    assert len(a) == 70
    for left, right in zip(a, b, strict=True):
        assert left["label"] == right["label"]
        assert left["p_combined"] == pytest.approx(
            right["p_combined"], abs=0.04
        )  # a rank of 28, where two values are all but equal


@pytest.mark.slow
def test_grey_files_among_colour_ones_are_what_the_model_takes(shiftprism: Run) -> None:
    """A grey file is read as one channel, and the model of a run takes three: the same gray in each."""
    classifier = save_model(channels=3)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), np.uint8)
    pixels[50:] = pixels[50:, :, :, :1]
    for folder, last in (("mixed", 50), ("colour", 60)):
        Path(folder).mkdir()
        for number, picture in enumerate(pixels):
            image = Image.fromarray(picture if number < last else picture[..., 0])
            image.save(f"{folder}/{number:02}.png")
    for folder in ("mixed", "colour"):
        ended = shiftprism("fit", "model", "--data", folder, "--out", f"of-{folder}", "--concept", "energy")
        assert ended.code == 0, ended.err
    mixed, colour = Detector.load("of-mixed"), Detector.load("of-colour")
    torch.testing.assert_close(mixed.held.concept, colour.held.concept, rtol=1e-4, atol=1e-5)
    assert mixed.names == classifier.names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "none"), "Expected --data"),
        (("--data", "empty"), "Expected --data to be a folder with images but got empty without any"),
        (("--data", "others"), "Expected --data to be a folder of the model's 10 classes but got others with cats"),
        (
            ("--data", "few"),
            "Expected --data to be at least 50 held-out images for a false-alarm rate of 0.05 but got 10",
        ),
        (("--data", "few", "--resize", "4"), "Expected --resize to be at least 8, the size of the model's images"),
        (("--data", "few", "--false-alarm", "2"), "between 0 and 1"),
        (("--data", "bad"), "Expected --data to be a folder with readable images but got bad (bad/0.png: "),
        (("--data", "few", "--concept", "style"), "at least 50 held-out images"),
        ((), "Expected --data to be given"),
        (("--precision", "int8"), "Expected --precision to be one of bfloat16, float16, float32 but got 'int8'"),
    ],
)
def test_what_cannot_be_fitted_is_one_line(shiftprism: Run, words: tuple[str, ...], message: str) -> None:
    save_model()
    for folder in ("empty", "bad", "others/cats"):
        Path(folder).mkdir(parents=True)
    Path("bad/0.png").write_bytes(b"bad")
    write_digits("few", 10, by_class=False)
    write_digits("others", 10, by_class=True)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("others/cats/1.png")
    ended = shiftprism("fit", "model", "--out", "detector", *words)
    assert ended.code == 1
    assert ended.err.startswith("shiftprism: ")
    assert ended.err.count("\n") == 1, ended.err
    assert message in ended.err
    assert not Path("detector").exists()
