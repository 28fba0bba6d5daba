"""`shiftprism fit` and `shiftprism score`: detectors of digits, image files of every kind, files that are resumed."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from shiftprism.classifier import Classifier, Preprocessing
from shiftprism.cli import main
from shiftprism.cli._verdict_files import COLUMNS
from shiftprism.datasets import load
from shiftprism.detector import Detector, score_files
from shiftprism.verdicts import Verdicts


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def shiftprism(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Ended:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        assert isinstance(stop.value.code, int)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Ended(stop.value.code, printed.out, printed.err)

    return run


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector of digits that resizes other images; its network is not trained, and need not be."""
    data = load("digits", "train")
    classifier = Classifier.build("digits", "vanilla", data.names, 1)
    classifier.preprocessing = Preprocessing(size=(8, 8), resize=8, channels=1)
    folder = tmp_path_factory.mktemp("fitted") / "digits"
    Detector.fit(classifier, data.images[:300], data.labels[:300], concept="energy", copies=4).save(folder)
    return folder


def write_digits(folder: Path, count: int, first: int = 0) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, image in enumerate(load("digits", "test").images[first : first + count], first):
        paths.append(folder / f"{number:04}.png")
        Image.fromarray(image[0].numpy()).save(paths[-1])
    return paths


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows: list[dict[str, Any]] = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_file_holds_what_the_detector_says(shiftprism: Run, detector: Path, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    paths = write_digits(Path("photos"), 150)
    Path("photos/broken.png").write_bytes(b"\x89PNG nothing")
    ended = shiftprism("score", detector, "photos", "--to", f"verdicts.{ending}")
    verdicts = Detector.load(detector)(load("digits", "test").images[:150])
    rows = read_rows(Path(f"verdicts.{ending}"))
    assert [row["path"] for row in rows] == [*map(str, paths), "photos/broken.png"]
    assert tuple(rows[0]) == COLUMNS
    for row, verdict, label in zip(rows[:-1], verdicts, verdicts.label, strict=True):
        assert (row["kind"], row["name"], int(row["label"]), row["problem"]) == (verdict.kind, verdict.name, label, "")
        for name in ("confidence", "style", "concept", "p_covariate", "p_concept", "p_combined"):
            # batches of other sizes round differently
            assert float(row[name]) == pytest.approx(getattr(verdict, name), rel=1e-3, abs=1e-4)
    assert rows[-1]["problem"]
    assert not rows[-1]["kind"]
    flagged = sum(verdicts.kind != "in-distribution")
    assert ended.code == (5 if flagged else 4)
    assert f"151 images by {detector} at 5% false alarms: {150 - flagged} in-distribution" in ended.out
    assert list(Path().glob("*.part*")) == []


def test_exit_codes(shiftprism: Run, detector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_digits(Path("photos"), 60)
    kinds = Detector.load(detector)(load("digits", "test").images[:60]).kind
    fine = [path for path, kind in zip(paths, kinds, strict=True) if kind == "in-distribution"][:3]
    strange = [Path("strange.png")]
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(strange[0])
    Path("bad.png").write_bytes(b"bad")
    codes = [shiftprism("score", detector, *files).code for files in (fine, strange, [*fine, "bad.png"])]
    assert codes == [0, 3, 4]
    ended = shiftprism("score", detector, *strange, "bad.png")
    assert ended.code == 5
    assert ended.err == "shiftprism: 1 of 2 files could not be read; the rows say why\n"
    ended = shiftprism("score", "nosuch", *fine)
    assert ended.code == 1
    assert "Expected DETECTOR to be the folder of a detector" in ended.err
    assert shiftprism("score", detector).code == 2
    # a level at which every image is flagged, without a new fit
    assert shiftprism("score", detector, *fine, "--false-alarm", "0.999").code == 3
    ended = shiftprism("score", detector, *fine, "--false-alarm", "0.0001")
    assert ended.code == 1
    assert "9999 held-out images" in ended.err
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{path}\n" for path in strange)))
    assert shiftprism("score", detector, "-").code == 3


def test_sentences_about_files_of_one_name_have_their_folders(shiftprism: Run, detector: Path) -> None:
    write_digits(Path("one"), 2)
    write_digits(Path("other"), 1)
    ended = shiftprism("score", detector, "one", "other")
    sentences = ended.out.split("\n\n")[1].splitlines()
    assert [line.split(": ")[0] for line in sentences] == ["one/0000.png", "0001.png", "other/0000.png"]


def test_a_few_images_are_a_table_and_sentences(shiftprism: Run, detector: Path) -> None:
    path = write_digits(Path("photos"), 1)[0]
    Path("notes.txt").write_text("no image")
    ended = shiftprism("score", detector, path, "notes.txt", "photos/*.png", "nothing/*.png")
    verdict = Detector.load(detector)(load("digits", "test").images[:1])[0]
    assert f"{path.name}: {verdict}" in ended.out
    lines = ended.out.splitlines()
    assert lines[0].split() == ["path", "class", "confidence", "kind"]
    assert lines[1].split()[:2] == [str(path), verdict.name]
    assert lines[1].split()[-1] == verdict.kind
    assert "notes.txt: skipped: it is not in an image format we read" in ended.out
    assert "*.png: skipped: No such file or directory." in ended.out
    assert ended.out.count(f"{path} ") == 1  # named twice, scored once


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_second_run_resumes(shiftprism: Run, detector: Path, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    write_digits(Path("photos"), 5)
    file = Path(f"verdicts.{ending}")
    shiftprism("score", detector, "photos", "--to", file)
    before = read_rows(file)
    write_digits(Path("photos"), 5, first=5)
    ended = shiftprism("score", detector, "photos", "--to", file)
    assert "5 of 10 images are in" in ended.out
    assert read_rows(file)[:5] == before
    assert len(read_rows(file)) == 10
    # the exit code is that of all images that were asked for
    assert shiftprism("score", detector, "photos", "--to", file).code == ended.code
    ended = shiftprism("score", detector, "photos", "--to", file, "--false-alarm", "0.2")
    assert ended.code == 1
    assert "written by the same detector at the same level" in ended.err
    shiftprism("score", detector, "photos", "--to", file, "--false-alarm", "0.2", "--force")
    assert all(row["detector"].endswith(" at 20% false alarms") for row in read_rows(file))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("lost", [1, 20, 200])
def test_what_a_killed_run_wrote_is_kept(shiftprism: Run, detector: Path, ending: str, lost: int) -> None:
    """A kill may leave a part of the last row: whole rows stay, byte for byte, and the part is cut off."""
    write_digits(Path("photos"), 6)
    os.rename("photos/0002.png", 'photos/a "quoted"\nname, of two lines.png')
    file = Path(f"verdicts.{ending}")
    shiftprism("score", detector, "photos", "--to", file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-lost])
    shiftprism("score", detector, "photos", "--to", file)
    assert len(read_rows(file)) == 6
    assert {row["path"] for row in read_rows(file)} == {str(path) for path in Path("photos").iterdir()}
    kept = whole[:-lost].rpartition(b"\n")[0]
    assert file.read_bytes().startswith(kept[: kept.rindex(b"}" if ending == "jsonl" else b"alarms")])


@pytest.mark.parametrize("edit", [{"kind": None}, {"kind": "odd"}, {"problem": "broken"}])
def test_a_row_with_neither_or_both_of_kind_and_problem_is_refused(
    shiftprism: Run, detector: Path, edit: dict[str, str | None]
) -> None:
    write_digits(Path("photos"), 1)
    shiftprism("score", detector, "photos", "--to", "verdicts.jsonl")
    row = json.loads(Path("verdicts.jsonl").read_text())
    Path("verdicts.jsonl").write_text(json.dumps(row | edit) + "\n")
    ended = shiftprism("score", detector, "photos", "--to", "verdicts.jsonl")
    assert ended.code == 1
    assert "verdicts.jsonl, where row 1 is none of ours" in ended.err


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "my notes", '{"rows": 1}\n'])
def test_a_file_of_others_is_never_changed(shiftprism: Run, detector: Path, text: str) -> None:
    write_digits(Path("photos"), 1)
    for name in ("other.csv", "other.jsonl", "other.parquet"):
        Path(name).write_text(text)
        ended = shiftprism("score", detector, "photos", "--to", name)
        assert ended.code == 1
        assert "Expected --to to be new, or a file of verdicts" in ended.err
        assert Path(name).read_text() == text
    assert "Expected --to to be a file that ends in" in shiftprism("score", detector, "photos", "--to", "a.xls").err


@pytest.mark.slow
def test_a_run_that_is_killed_is_resumed(detector: Path, tmp_path: Path) -> None:
    write_digits(tmp_path / "photos", 500)
    for copy in range(10):
        for path in sorted((tmp_path / "photos").glob("????.png")):
            os.link(path, path.with_name(f"{copy}-{path.name}"))
    words = [sys.executable, "-m", "shiftprism", "score", str(detector), "photos", "--to", "verdicts.jsonl"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    file = tmp_path / "verdicts.jsonl"
    while process.poll() is None and (not file.exists() or file.stat().st_size < 100_000):
        pass
    process.kill()
    process.wait()
    before = file.read_bytes()
    assert before
    subprocess.run(words, cwd=tmp_path, check=False, stdout=subprocess.DEVNULL)
    assert file.read_bytes().startswith(before[: before.rindex(b"\n")])
    rows = read_rows(file)
    assert len(rows) == len({row["path"] for row in rows}) == 5500


def hostile_files(folder: Path) -> dict[str, bool]:
    """Files of every kind, and whether each is to be read."""
    folder.mkdir()
    grey = load("digits", "test").images[0, 0].numpy() * 16
    picture = Image.fromarray(np.minimum(grey, 255).astype(np.uint8)).resize((40, 30))
    made = {"plain.png": picture, "cmyk.jpg": picture.convert("CMYK"), "palette.gif": picture.convert("P")}
    made |= {"alpha.png": picture.convert("LA"), "16bit.png": Image.fromarray(np.asarray(picture).astype("u2") * 256)}
    made |= {"one.png": picture.resize((1, 1)), "wide.png": picture.resize((3000, 2))}
    for name, image in made.items():
        image.save(folder / name)
    picture.save(folder / "animated.gif", save_all=True, append_images=[picture.rotate(90)] * 2, duration=50)
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(folder / "rotated.jpg", exif=exif)
    whole = (folder / "plain.png").read_bytes()
    damaged = {
        "random.png": np.random.default_rng(0).bytes(500),
        "cut.png": whole[:-30],
        "empty.jpg": b"",
        "flipped.png": whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        "bomb.png": whole[:16] + (1 << 30).to_bytes(4, "big") * 2 + whole[24:],
    }
    for name, content in damaged.items():
        (folder / name).write_bytes(content)
    return dict.fromkeys([*made, "animated.gif", "rotated.jpg"], True) | dict.fromkeys(damaged, False)


def test_hostile_files_are_rows(shiftprism: Run, detector: Path) -> None:
    files = hostile_files(Path("photos"))
    ended = shiftprism("score", detector, "photos", "--to", "verdicts.jsonl")
    assert ended.code in (4, 5)
    rows = {Path(row["path"]).name: row for row in read_rows(Path("verdicts.jsonl"))}
    assert {name: not row["problem"] for name, row in rows.items()} == files
    assert all("\n" not in row["problem"] for row in rows.values())
    # the first frame of an animation, and a palette, are the picture itself
    for name in ("animated.gif", "palette.gif", "16bit.png"):
        assert rows[name]["style"] == pytest.approx(rows["plain.png"]["style"], rel=0.05), name


def test_a_photograph_turned_by_its_camera_is_upright(detector: Path, tmp_path: Path) -> None:
    files = hostile_files(tmp_path / "photos")
    assert files["rotated.jpg"]
    with Image.open(tmp_path / "photos/rotated.jpg") as image:
        upright = image.transpose(Image.Transpose.ROTATE_270)
    upright.save(tmp_path / "upright.png")
    turned, right = score_files(Detector.load(detector), [tmp_path / "photos/rotated.jpg", tmp_path / "upright.png"])
    assert turned.verdict is not None
    assert right.verdict is not None
    assert turned.verdict.style == pytest.approx(right.verdict.style, rel=1e-3)


def edit_json(key: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        about = json.loads((folder / "detector.json").read_text())
        del about[key]
        (folder / "detector.json").write_text(json.dumps(about))

    return edit


def flip(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) * 3 // 4] ^= 4
        (folder / name).write_bytes(content)

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        *map(edit_json, ("format", "names", "concept", "false_alarm", "fingerprint")),
        *map(flip, ("model/weights.safetensors", "ranks.safetensors", "style/weights.safetensors")),
    ],
)
def test_a_damaged_detector_is_one_line(
    shiftprism: Run, detector: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    import shutil

    shutil.copytree(detector, tmp_path / "copy")
    damage(tmp_path / "copy")
    write_digits(Path("photos"), 1)
    ended = shiftprism("score", "copy", "photos")
    assert ended.code == 1
    assert ended.err.startswith("shiftprism: ")
    assert ended.err.count("\n") == 1, ended.err
    assert "copy" in ended.err


def test_memory_stays_flat_and_reading_stops_with_the_caller(detector: Path, tmp_path: Path) -> None:
    """Only a few batches are read ahead of the rows that are asked for."""
    path = write_digits(tmp_path / "photos", 1)[0]
    asked: list[int] = []

    def paths() -> Any:
        for number in range(100_000):
            asked.append(number)
            yield path

    rows = score_files(Detector.load(detector), paths(), batch=4)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert len(asked) < 200


def test_an_image_that_the_model_refuses_is_the_only_one_without_a_verdict(detector: Path, tmp_path: Path) -> None:
    found = Detector.load(detector)
    paths = write_digits(tmp_path, 5)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(paths[1])
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(paths[2])  # of another shape: prepared by nobody here
    calls: list[tuple[int, ...]] = []

    def judge(images: torch.Tensor) -> Verdicts:
        calls.append(tuple(images.shape))
        if bool((images.flatten(1).max(1).values == 0).any()):
            raise RuntimeError("the model\ndoes not like black")
        return found(images)

    rows = list(score_files(judge, paths))
    assert [row.problem for row in rows] == ["", *["the model does not like black"] * 2, "", ""]
    assert [row.label for row in rows][1:3] == [-1, -1]
    assert calls[0] == (4, 1, 8, 8)
    assert [row.path for row in rows] == paths
    alone = found(load("digits", "test").images[3:4])
    assert rows[3].label == alone.label[0]
