"""Folders, tar shards and Parquet files in parts: the same rows as one by one, and a file that grows by parts."""

import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from exported import Exported
from shiftprism import archives
from shiftprism.archives import Part, ScoredImage, list_parts, list_places
from shiftprism.cli import main
from shiftprism.detector import score_files
from shiftprism.runtime import load

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
COUNT = 40


@pytest.fixture
def images(exported_digits: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Encoded images by name, one of them broken; each is also a file in the folder photos."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    made = {}
    for number, image in enumerate(exported_digits.images[:COUNT]):
        content = io.BytesIO()
        Image.fromarray(image[0].numpy()).save(content, "PNG")
        made[f"{number:03}.png"] = content.getvalue()
    made["broken.png"] = b"broken"
    for name, content_of in made.items():
        Path("photos", name).write_bytes(content_of)
    return made


@pytest.fixture
def score(exported_digits: Exported, monkeypatch: pytest.MonkeyPatch) -> Callable[[Part], list[ScoredImage]]:
    """What a worker does with a part, in this process: the model comes from its file in place of Ray's memory."""
    detector = load(exported_digits.path, threads=1)
    monkeypatch.setattr(archives, "_open_model", lambda model: detector)
    return lambda part: archives._score_part(archives._Model("", None, None), part, 1, "cpu")


@pytest.fixture
def alone(exported_digits: Exported, images: dict[str, bytes]) -> dict[str, ScoredImage]:
    """The witness: the files one by one, as `shiftprism score` without a cluster does it."""
    detector = load(exported_digits.path)
    scored = score_files(
        lambda batch: detector(batch.numpy()),
        [Path("photos", name) for name in images],
        prepare=lambda image: torch.from_numpy(detector.prepare(image.numpy())),
    )
    return {file.path.name: ScoredImage(file.path.name, *file[1:]) for file in scored}


def assert_same(found: list[ScoredImage], alone: dict[str, ScoredImage], before: str) -> None:
    """Each image once, under its name, with the verdict that it has alone; batches may differ, so rounding may."""
    assert [image.path for image in found] == [f"{before}/{name}" for name in alone]
    for image, other in zip(found, alone.values(), strict=True):
        assert (image.label, image.problem) == (other.label, other.problem)
        if image.verdict is not None:
            assert other.verdict is not None
            assert image.verdict.kind == other.verdict.kind
            assert image.verdict[1:7] == pytest.approx(other.verdict[1:7], abs=1e-4)


def write_tar(path: Path, images: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in images.items():
            # a label beside each image, as WebDataset has it
            for member, data in ((name, content), (name.replace(".png", ".cls"), b"3")):
                about = tarfile.TarInfo(f"./{member}")
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
    return path


def test_a_part_of_files_has_the_rows_of_the_files(
    images: dict[str, bytes], score: Callable[[Part], list[ScoredImage]], alone: dict[str, ScoredImage]
) -> None:
    """Fails if a name is lost or moved by one, or if a broken file ends its part."""
    parts = list(list_parts(list_places(["photos"]), files=16))
    assert [len(part.names) for part in parts] == [16, 16, 9]
    assert_same([image for part in parts for image in score(part)], alone, "photos")


@pytest.mark.parametrize(("name", "mode"), [("shard.tar", "w"), ("shard.tar.gz", "w:gz")])
def test_a_tar_shard_has_the_rows_of_its_images(
    images: dict[str, bytes],
    score: Callable[[Part], list[ScoredImage]],
    alone: dict[str, ScoredImage],
    name: str,
    mode: str,
) -> None:
    """Fails if labels beside the images become rows, or a name keeps its "./"."""
    (part,) = list_parts([str(write_tar(Path(name), images, mode))])
    assert_same(score(part), alone, name)


HEADERS = 20 * 2048
"""Where the header of image 20 begins: 512 bytes of header and 512 of data, twice an image."""


@pytest.mark.parametrize("cut", [HEADERS, HEADERS + 300, HEADERS + 700, "damaged"])
def test_a_shard_that_breaks_off_keeps_the_rows_before(
    images: dict[str, bytes],
    score: Callable[[Part], list[ScoredImage]],
    alone: dict[str, ScoredImage],
    cut: "int | str",
) -> None:
    """Between two images, in a header, in an image, or with a header that is changed: `tarfile` says so of one only."""
    content = bytearray(write_tar(Path("cut.tar"), images).read_bytes())
    if isinstance(cut, int):
        del content[cut:]
    else:
        content[HEADERS + 150] ^= 1  # of the checksum
    Path("cut.tar").write_bytes(content)
    *kept, last = score(next(list_parts(["cut.tar"])))
    assert_same(kept, dict(list(alone.items())[: len(kept)]), "cut.tar")
    assert 18 <= len(kept) <= 21
    assert (last.path, last.verdict) == ("cut.tar", None)
    assert last.problem.startswith(f"the archive cannot be read after {len(kept)} images (")
    (missing,) = score(next(list_parts(["nothing.tar"])))
    assert "after 0 images" in missing.problem


def test_a_name_with_a_slash_stays_in_its_shard(
    images: dict[str, bytes], score: Callable[[Part], list[ScoredImage]]
) -> None:
    with tarfile.open("shard.tar", "w") as tar:
        about = tarfile.TarInfo("/abs/x.png")
        about.size = len(images["000.png"])
        tar.addfile(about, io.BytesIO(images["000.png"]))
    assert [image.path for image in score(next(list_parts(["shard.tar"])))] == ["shard.tar/abs/x.png"]


def test_a_parquet_file_has_the_rows_of_its_images(
    images: dict[str, bytes], score: Callable[[Part], list[ScoredImage]], alone: dict[str, ScoredImage]
) -> None:
    """Bytes with a column of names, Hugging Face's structures, and names alone. Fails if a row group starts at 0."""
    names, contents = list(images), list(images.values())
    tables = {
        "bytes.parquet": {"label": [0] * len(names), "path": names, "picture": contents},
        "hf.parquet": {"image": [{"bytes": one, "path": name} for name, one in images.items()]},
        "photos/names.parquet": {"file_name": names},
    }
    for place, table in tables.items():
        parquet.write_table(arrow.table(table), place, row_group_size=15)
        parts = list(list_parts([place]))
        assert len(parts) == 3
        assert_same([image for part in parts for image in score(part)], alone, place)
    parquet.write_table(arrow.table({"image": [contents[0], None]}), "bare.parquet", row_group_size=1)
    first, second = [image for part in list_parts(["bare.parquet"]) for image in score(part)]
    assert (first.path, first.label) == ("bare.parquet/0", alone["000.png"].label)
    assert (second.path, second.problem) == ("bare.parquet/1", "this row has no image")
    elsewhere = {"url": ["000.png", "http://somewhere/x.png", "001.png"]}
    parquet.write_table(arrow.table(elsewhere), "photos/urls.parquet")
    first, second, third = score(next(list_parts(["photos/urls.parquet"])))
    assert (first.label, third.label) == (alone["000.png"].label, alone["001.png"].label)
    assert "s3://bucket/folder but got http://somewhere/x.png" in second.problem
    structures = [{"bytes": contents[1], "path": "001.png"}, {"bytes": None, "path": "000.png"}]
    parquet.write_table(arrow.table({"image": structures}), "photos/hf.parquet")
    _, named = score(next(list_parts(["photos/hf.parquet"])))
    assert (named.path, named.label) == ("photos/hf.parquet/000.png", alone["000.png"].label)


def test_the_column_of_images_is_asked_for_where_it_is_not_clear(images: dict[str, bytes]) -> None:
    parquet.write_table(arrow.table({"a": [b"x"], "b": [b"y"], "n": [1]}), "two.parquet")
    with pytest.raises(ValueError, match=r"one column of bytes but got two\.parquet with a, b; say which: --column a"):
        list(list_parts(["two.parquet"]))
    assert next(list_parts(["two.parquet"], "b")).columns == ("b",)
    with pytest.raises(ValueError, match="Expected `--column` to be a column of images but got 'n'"):
        list(list_parts(["two.parquet"], "n"))
    parquet.write_table(arrow.table({"n": [1]}), "none.parquet")
    with pytest.raises(ValueError, match=r"a column of images but got none\.parquet with n"):
        list(list_parts(["none.parquet"]))


def test_a_damaged_parquet_file_is_a_row_with_its_reason(
    images: dict[str, bytes], score: Callable[[Part], list[ScoredImage]]
) -> None:
    Path("bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    (row,) = score(next(list_parts(["bad.parquet"])))
    assert row.verdict is None
    assert "after 0 images" in row.problem
    # it was damaged only while it was listed: its other row groups are unknown, so the part is not done
    part = next(list_parts(["bad.parquet"]))
    parquet.write_table(arrow.table({"image": list(images.values())}), "bad.parquet", row_group_size=15)
    with pytest.raises(RuntimeError, match="could not be read when it was listed, and can be now"):
        score(part)


def test_a_storage_that_fails_is_no_row(
    images: dict[str, bytes], score: Callable[[Part], list[ScoredImage]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if an expired token becomes rows, which a later command would take for done."""

    class Expired:
        def open_input_stream(self, path: str, **options: Any) -> Any:
            if path.endswith("gone.png"):
                raise FileNotFoundError(2, "No such file or directory")
            raise OSError("When reading key: AWS Error ACCESS_DENIED during HeadObject operation")

    monkeypatch.setattr("shiftprism.archives._open_bucket", lambda bucket: Expired())
    for name in ("s3://b/a.png", "s3://b/a.tar"):
        with pytest.raises(RuntimeError, match=r"s3://b/a\.\w+ \(When reading key: AWS Error ACCESS_DENIED"):
            score(next(list_parts([name])))
    (row,) = score(next(list_parts(["s3://b/gone.png"])))
    assert row.problem == "No such file or directory"


def test_a_disk_that_a_worker_does_not_have_fails_the_part(score: Callable[[Part], list[ScoredImage]]) -> None:
    """Fails if the part becomes rows that say "No such file": a later command would take them for done."""
    for name, folder in (("a.png", "/no/such/disk"), ("b.tar", "/no/such/disk"), ("/no/such/disk/a.png", "/tmp")):
        with pytest.raises(ValueError, match="every worker shares but got /no/such/disk, which "):
            score(next(list_parts([name], folder=folder)))


def test_other_storages_are_refused(images: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="s3://bucket/folder but got gs://a/b"):
        list(list_places(["gs://a/b"]))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("photos --cluster local", "Expected --to to be given with --cluster but got nothing; add --to verdicts.parq"),
        (
            "photos --cluster localhost:1 --to v.parquet",
            "Expected --cluster to be the address of a Ray cluster but got",
        ),
        ("photos --cluster nowhere --to v.parquet", "Expected --cluster to be auto, local, or an address"),
        ("empty --cluster local --to v.parquet", "Expected IMAGES to be at least one image or archive but got none in"),
        ("photos --cluster local --to v.csv", "Expected --to to be a .parquet file with --cluster but got v.csv"),
        ("photos --cluster local --to v.parquet --model a:b", "Expected --model to be left out with --cluster"),
        ("photos --cluster local --to v.parquet --device mps", "Expected --device to be auto or cpu with --cluster"),
        (
            "shard.tar",
            "Expected IMAGES to be image files or folders without --cluster but got shard.tar; add --cluster",
        ),
        ("photos --column x", "Expected --column to be left out without --cluster"),
        ("gs://a --cluster local --to v.parquet", "Expected IMAGES to be files, folders or s3://bucket/folder"),
    ],
)
def test_what_is_wrong_is_one_line(
    images: dict[str, bytes], exported_digits: Exported, capsys: pytest.CaptureFixture[str], words: str, line: str
) -> None:
    pytest.importorskip("ray")
    Path("empty").mkdir()
    with pytest.raises(SystemExit) as stop:
        main(["score", str(exported_digits.path), *words.split()])
    error = capsys.readouterr().err
    assert (stop.value.code, error.count("\n")) == (1, 1), error
    assert error.startswith(f"shiftprism: {line}")
    assert not list(Path().glob("v.*"))


def test_a_missing_ray_is_named_with_its_pip_line(
    exported_digits: Exported, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit):
        main(["score", str(exported_digits.path), "x.png", "--cluster", "local", "--to", "v.parquet"])
    assert capsys.readouterr().err.endswith('run: pip install "shiftprism[cluster]"\n')


def start(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    """The command in a process of its own, with a Ray of two cores of its own."""
    code = "import ray, sys; from shiftprism.cli import main; ray.init(num_cpus=2, include_dashboard=False,"
    code += " log_to_driver=False, logging_level='error'); main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def list_files(folder: Path) -> dict[str, int]:
    """The finished parts in a folder, and when each was written."""
    found = {}
    for path in folder.glob("[!.]*.parquet"):
        with suppress(FileNotFoundError):  # the last step removes them
            found[path.name] = path.stat().st_mtime_ns
    return found


def descendants(process: int) -> Iterator[int]:
    with suppress(OSError):  # it has ended
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def working(process: int) -> list[int]:
    """The Ray workers below a process that are at a task: Ray names them after it."""
    found = []
    for number in descendants(process):
        try:
            name = Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::_run_task"):
            found.append(number)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's list of processes")
def test_a_killed_worker_and_a_stopped_run_change_no_row(exported_digits: Exported, tmp_path: Path) -> None:
    """The command is stopped, then repeated; then a worker is killed at its task: the rows are those of one machine.

    Fails if the part of a lost worker is lost (max_retries=0), or if a repeated command does finished parts again.
    """
    pytest.importorskip("ray")
    count = 16_000  # 63 parts: a quick machine has not done them all when the signal arrives
    (tmp_path / "digits.onnx").write_bytes(exported_digits.path.read_bytes())
    (tmp_path / "photos").mkdir()
    for number in range(count):
        image = exported_digits.images[number % len(exported_digits.images)]
        Image.fromarray(image[0].numpy()).save(tmp_path / f"photos/{number:05}.png")
    words = ["score", "digits.onnx", "photos", "--cluster", "local", "--to", "cluster.parquet"]
    first, parts = start(words, tmp_path), tmp_path / "cluster.parquet.parts"
    try:
        while len(list_files(parts)) < 2 and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=120)
    finally:
        first.kill()
        first.wait()
    assert first.returncode == 130, errors
    kept = list_files(parts)
    assert 2 <= len(kept) < 63, "stopped too late"
    second = start(words, tmp_path)
    killed = 0
    try:
        while second.poll() is None:
            now = list_files(parts)
            assert {name: kept[name] for name in now if name in kept} == {
                name: now[name] for name in now if name in kept
            }
            for worker in working(second.pid)[: 1 - killed]:
                os.kill(worker, signal.SIGKILL)
                killed += 1
            time.sleep(0.02)
        out, errors = second.communicate()
    finally:
        second.kill()
        second.wait()
    assert killed == 1
    assert second.returncode == 3, errors
    assert f"{256 * len(kept)} images are in cluster.parquet already" in out
    local = subprocess.run(
        [sys.executable, "-m", "shiftprism", "score", "digits.onnx", "photos", "--to", "local.parquet"],
        cwd=tmp_path,
        check=False,
    )
    assert local.returncode == 3
    ours, theirs = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("cluster", "local"))
    assert ours.schema.equals(theirs.schema)
    rows, others = ours.to_pylist(), theirs.to_pylist()
    assert [row["path"] for row in rows] == [f"photos/{number:05}.png" for number in range(count)]
    for row, other in zip(rows, others, strict=True):
        for name, value in row.items():
            assert value == (pytest.approx(other[name], abs=1e-4) if isinstance(value, float) else other[name]), name


@pytest.mark.slow
@pytest.mark.skipif("SHIFTPRISM_MOTO" not in os.environ, reason="SHIFTPRISM_MOTO names no Python with moto[server]")
def test_a_bucket_has_the_rows_of_its_files(
    images: dict[str, bytes],
    score: Callable[[Part], list[ScoredImage]],
    alone: dict[str, ScoredImage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against moto's server, which speaks S3. Fails if a key loses its bucket, or notes in a folder become rows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    command = [os.environ["SHIFTPRISM_MOTO"], "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, stderr=subprocess.DEVNULL)

    def put(key: str, content: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{address}/{key}", content, headers, method="PUT")
        urllib.request.urlopen(request).close()

    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        put("archive", b"")
        for name, content in images.items():
            put(f"archive/photos/{name}", content)
        put("archive/photos/notes.txt", b"x")
        put("archive/shard.tar", write_tar(Path("shard.tar"), images).read_bytes())
        for place, before in (("s3://archive/photos/", "s3://archive/photos"), ("s3://archive/shard.tar",) * 2):
            assert_same([image for part in list_parts(list_places([place])) for image in score(part)], alone, before)
        with pytest.raises(ValueError, match="in a storage that answers but got s3://nowhere"):
            list(list_places(["s3://nowhere"]))
    finally:
        server.kill()
        server.wait()
