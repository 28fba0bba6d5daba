"""A detector fitted by workers: the one that `Detector.fit` makes of the same images, resumed where it was stopped."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

import shiftprism.detector._cluster as under_test
from shiftprism._tasks import TaskResult
from shiftprism.classifier import Classifier
from shiftprism.cli import main
from shiftprism.datasets import Dataset, list_images, load
from shiftprism.detector import Copies, Detector, fit_on_cluster
from shiftprism.outputs import Outputs

COUNT = 150
FORWARDED: list[Any] = []


def make_model() -> Classifier:
    torch.manual_seed(0)
    classifier = Classifier.build("digits", "vanilla", load("digits", "train").names, 1).eval()
    classifier.image_size = (8, 8)
    return classifier


def write_digits(folder: Path) -> Dataset:
    data = load("digits", "train").rows(torch.arange(COUNT))
    folder.mkdir()
    for number, image in enumerate(data.images):
        Image.fromarray(image[0].numpy()).save(folder / f"{number:04}.png")
    return data


def same(one: Detector, other: Detector) -> None:
    """Equal up to the rounding of batches."""
    assert one.concept == other.concept
    for left, right in zip(one.held, other.held, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
    images = load("digits", "test").images[:80]
    left_verdicts, right_verdicts = one(images), other(images)
    assert (left_verdicts.kind == right_verdicts.kind).all()
    assert left_verdicts.p_combined == pytest.approx(right_verdicts.p_combined)
    assert left_verdicts.confidence == pytest.approx(right_verdicts.confidence, abs=1e-4)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster: the tasks of a part run one after another in this process, in reverse order."""
    FORWARDED.clear()

    @contextmanager
    def connect(cluster: str) -> Iterator[Any]:
        yield SimpleNamespace(put=lambda value: value)

    def run(work: Callable[..., Any], items: Sequence[Any], **options: Any) -> Iterator[TaskResult]:
        for number, item in reversed(list(enumerate(items))):
            FORWARDED.append(item)
            yield TaskResult(number, work(item, 1, "cpu"), "", "")

    monkeypatch.setattr(under_test, "connect", connect)
    monkeypatch.setattr(under_test, "run_tasks", run)
    monkeypatch.setattr(under_test, "need", lambda module, extra: SimpleNamespace(get=lambda value: value))
    monkeypatch.setattr(under_test, "_FILES", 64)


@pytest.mark.usefixtures("here")
def test_it_is_the_detector_of_one_machine(tmp_path: Path) -> None:
    classifier, data = make_model(), write_digits(tmp_path / "photos")
    steps: list[tuple[int, int]] = []
    found = fit_on_cluster(
        classifier,
        list_images(tmp_path / "photos"),
        data.labels,
        folder=tmp_path / "parts",
        concept="fdbd",
        copies=8,
        progress=lambda *step: steps.append(step),
    )
    same(found.detector, Detector.fit(classifier, list(data.images), data.labels, concept="fdbd", copies=8))
    assert found.problems == []
    assert len(found.paths) == COUNT
    assert not (tmp_path / "parts").exists()
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.usefixtures("here")
def test_an_image_of_another_size_is_left_out_and_a_copy_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, _ = make_model(), write_digits(tmp_path / "photos")
    Image.new("L", (9, 9)).save(tmp_path / "photos/0070.png")
    paths = list_images(tmp_path / "photos")

    def fit() -> under_test.FittedFiles:
        return fit_on_cluster(classifier, paths, folder=tmp_path / "parts", concept="energy", copies=4)

    def fail(*words: Any, **options: Any) -> Any:
        raise ValueError("Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(under_test, "make_shifted_copies", fail)
        with pytest.raises(OSError, match=r"Stale file handle; it was readable when the fit began\); the others"):
            fit()
    found = fit()
    (problem,) = found.problems
    assert problem.startswith(f"{tmp_path}/photos/0070.png: ")
    assert "of 8 × 8 pixels but got 9 × 9" in problem
    assert len(found.paths) == COUNT - 1


@pytest.mark.usefixtures("here")
def test_broken_files_are_left_out_and_named_and_finished_parts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, data = make_model(), write_digits(tmp_path / "photos")
    (tmp_path / "photos/0003.png").write_bytes(b"no image")
    paths = list_images(tmp_path / "photos")

    def fit() -> under_test.FittedFiles:
        return fit_on_cluster(classifier, paths, folder=tmp_path / "parts", concept="energy", copies=4)

    run = getattr(under_test, "run_tasks")  # noqa: B009 (the one of the fixture)

    def break_off(work: Any, items: Any, **options: Any) -> Any:
        for task in run(work, items, **options):
            yield task._replace(result=None, error="its worker was lost") if task.number == 1 else task

    with monkeypatch.context() as patch:
        patch.setattr(under_test, "run_tasks", break_off)
        with pytest.raises(OSError, match=r"1 of 3 parts failed \(.*its worker was lost\); the others are kept in"):
            fit()
    FORWARDED.clear()
    found = fit()
    assert [part.numbers[0] for part in FORWARDED if not part.corruption] == [64]
    assert [problem.split(": ")[0] for problem in found.problems] == [str(tmp_path / "photos/0003.png")]
    kept = [image for number, image in enumerate(data.images) if number != 3]
    same(found.detector, Detector.fit(classifier, kept, concept="energy", copies=4))
    with pytest.raises(ValueError, match="Expected `paths` to be images that can be read"):
        fit_on_cluster(classifier, [tmp_path / "photos/0003.png"] * 50, folder=tmp_path / "parts")
    FORWARDED.clear()
    with pytest.raises(ValueError, match=r"at least 50 held-out images for a false-alarm rate of 0\.05 but got 49"):
        fit_on_cluster(classifier, paths[:49], folder=tmp_path / "parts")
    with pytest.raises(ValueError, match="on a disk that every worker shares but got /no/such/disk"):
        fit_on_cluster(classifier, ["/no/such/disk/0.png"] * 50, folder=tmp_path / "parts")
    assert len(FORWARDED) == 1
    with pytest.raises(ValueError, match="Expected `paths` to be files of images but got none"):
        fit_on_cluster(classifier, [], folder=tmp_path / "parts")


def test_copies_name_the_rows_that_were_copied() -> None:
    """Copies of every row, in another order, are the Outputs of all rows; those outside the fit part are not used."""
    torch.manual_seed(0)
    with torch.no_grad():
        outputs = make_model().head.outputs(torch.rand(200, make_model().head.in_features))
    outputs = outputs._replace(style=torch.randn(200, 3))
    shifted = Outputs(*(field.clone() for field in outputs))._replace(style=outputs.style + 1)
    order = torch.randperm(200)
    copies = Copies(shifted.rows(order), order, torch.zeros(200, dtype=torch.long))
    whole, named = (Detector.from_outputs(outputs, shifted={"dim": one}, concept="energy") for one in (shifted, copies))
    for left, right in zip(whole.held, named.held, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="Expected `shifted` to be copies of the 200 rows"):
        Detector.from_outputs(outputs, shifted={"dim": copies._replace(rows=order + 1)}, concept="energy")
    with pytest.raises(ValueError, match="Expected `classifier` to be of the 10 classes"):
        named.attach(Classifier.build("digits", "vanilla", ["a", "b"], 1))


def test_outputs_of_any_size_are_decided_on_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = make_model().head
    with torch.no_grad():
        outputs = head.outputs(torch.rand(200, head.in_features))
    detector = Detector.from_outputs(outputs, concept="knn")
    expected = detector.decide(outputs)
    outputs.save(tmp_path / "outputs.safetensors")
    monkeypatch.setattr("shiftprism.detector._detector._ROWS", 64)
    for one, other in zip(
        detector.decide(Outputs.load(tmp_path / "outputs.safetensors", mapped=True)[0]), expected, strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--data"),
        (["--data", "photos", "--training", "photos"], "--training"),
        (["--data", "photos", "--device", "cuda"], "--device"),
    ],
)
def test_what_a_cluster_has_no_use_for_is_refused(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(SystemExit) as stop:
        main(["fit", "model", "--out", "detector", "--cluster", "local", *words])
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_on_a_cluster_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray's own workers: the detector that one machine fits to the same images."""
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    classifier, data = make_model(), write_digits(tmp_path / "photos")
    classifier.save("model")
    with pytest.raises(SystemExit) as stop:
        main(["fit", "model", "--data", "photos", "--out", "detector", "--concept", "energy", "--cluster", "local"])
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    assert f"{COUNT} images of photos" in printed.out
    assert not Path("detector.parts").exists()
    same(Detector.load("detector"), Detector.fit(classifier, list(data.images), concept="energy"))
