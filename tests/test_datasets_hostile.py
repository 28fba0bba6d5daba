"""Files made to do harm: code in pickles, bombs, paths that lead elsewhere. All are refused before they cost much."""

import gzip
import io
import os
import pickle
import pickletools
import resource
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from shiftprism.datasets import _cifar, _images, _svhn, load
from shiftprism.datasets._pickles import read_pickle

GIGABYTE = 1 << 30
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_cifar, "ROWS", {"train": 20, "test": 4})
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))


@pytest.fixture
def little_memory() -> Iterator[None]:
    """So that a bomb that goes off is seen: it does not get the memory."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + GIGABYTE, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


class Runs:
    """What `pickle` would run: a command that leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "hidden", [lambda evil: evil, lambda evil: {"data": evil}, lambda evil: {"labels": [1, [evil]]}]
)
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(
    hidden: Callable[[Any], Any], protocol: int, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    batch = tmp_path / "cifar-10-batches-py" / "test_batch"
    batch.parent.mkdir()
    batch.write_bytes(pickle.dumps(hidden(Runs(trace)), protocol))
    with pytest.raises(ValueError, match=r"test_batch is damaged at byte \d+: it asks for `posix system`"):
        load("cifar10", "test", tmp_path)
    assert not trace.exists()
    pickle.loads(batch.read_bytes())  # noqa: S301 (the witness: pickle itself does run it)
    assert trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cbuiltins\neval\nU\x041+1\x85R.",
        b"\x80\x02cnumpy\nload\nU\x01x\x85R.",
        b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",  # a name it knows, called as it should not be
        b"\x80\x02cnumpy\ndtype\n}U\x01xK\x01sb.",  # setting the attributes of a name it knows
        b"\x80\x02c_codecs\nencode\n(N}U\x04makeK\x01stb.",  # and as slots, which are set without __dict__
        b"\x80\x02cnumpy\nndarray\n}U\x01xK\x01sb.",
        b"\x80\x02c_codecs\nencode\nU\x01xU\x05rot13\x86R.",
        b"(ios\nsystem\n.",  # INST
        b"\x80\x02U\x01xQ.",  # a persistent id
        b"\x80\x02\x82\x01.",  # an extension code
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02]U\x01xa}U\x01yK\x01sss.",
        b"\x80\x02K\x01K\x02a.",
        b"\x80\x02h\x07.",
        b"\x80\x02e.",
        b"\x80\x02.",
        b".",
        b"",
    ],
)
def test_other_instructions_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"batch is damaged at byte \d+"):
        read_pickle(content, "batch")


@given(PLAIN, st.integers(0, 4))
def test_plain_containers_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    content = pickle.dumps(value, protocol)
    assume(sum(opcode.name.startswith("TUPLE") for opcode, _, _ in pickletools.genops(content)) <= 24)
    assert read_pickle(content, "batch") == value


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_or_refused(content: bytes) -> None:
    try:
        read_pickle(content, "batch")
    except ValueError as error:
        assert "batch is damaged at byte" in str(error)  # noqa: PT017 (some bytes are a pickle)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_arrays_are_read_as_pickle_reads_them(protocol: int) -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.array_equal(read_pickle(pickle.dumps({"data": array}, protocol), "batch")["data"], array)


def test_arrays_of_objects_are_refused() -> None:
    content = pickle.dumps({"data": np.array([print], dtype=object)}, 2)
    with pytest.raises(ValueError, match="batch is damaged"):
        read_pickle(content, "batch")


def tar(path: Path, members: dict[str, bytes], **special: Any) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in special.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    "name", ["../evil.bin", "/etc/evil", "cifar-10-batches-bin/../../evil", "..\\evil", "C:\\evil"]
)
def test_a_member_that_leads_out_of_the_archive_is_refused(name: str, tmp_path: Path) -> None:
    tar(tmp_path / "cifar-10-binary.tar.gz", {name: b"x", "cifar-10-batches-bin/test_batch.bin": bytes(4 * 3073)})
    with pytest.raises(ValueError, match="leads out of the archive"):
        load("cifar10", "test", tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_a_link_or_a_device_is_refused(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    tar(path, {"cifar-10-batches-bin/test_batch.bin": b""}, type=kind, linkname="/etc/passwd")
    with pytest.raises(ValueError, match="a link or a device"):
        load("cifar10", "test", tmp_path)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to measure its memory")
@pytest.mark.usefixtures("little_memory")
class TestBombs:
    """Small files that claim or unpack to gigabytes, or would take for ever."""

    @pytest.mark.parametrize(
        "content",
        [
            b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of 2³¹ places
            b"\x80\x02]" + b"p99999999999\n.",
            b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",  # a bytes object of a terabyte
            b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",  # a bytearray, which is filled with zeros
            b"\x80\x02T\xff\xff\xff\x7fx.",
            b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",  # a frame
            b"\x80\x02(" + b"]" * (3 << 20) + b"l.",  # three million lists
            b"\x80\x02})"
            + b"\x85" * 1_000_000
            + b"K\x01s.",  # a key a million tuples deep: its hash would overflow the stack
            b"\x80\x02})" + b"q\x01h\x01\x86" * 100 + b"K\x01s.",  # a key whose hash would take 2¹⁰⁰ steps
        ],
        ids=lambda content: content[:8].hex(),
    )
    def test_a_pickle(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"batch is damaged at byte \d+"):
            read_pickle(content, "batch")

    def test_a_tar_of_zeros(self, tmp_path: Path) -> None:
        head = tarfile.TarInfo("cifar-10-batches-bin/readme.html")
        head.size = 3 * GIGABYTE
        self.zeros(tmp_path / "cifar-10-binary.tar.gz", head.tobuf(), 260)
        with pytest.raises(ValueError, match="a decompression bomb"):
            load("cifar10", "test", tmp_path)

    def test_a_tar_with_an_endless_extended_head(self, tmp_path: Path) -> None:
        head = tarfile.TarInfo("x")
        head.size, head.type = 3 * GIGABYTE, tarfile.XHDTYPE
        self.zeros(tmp_path / "cifar-10-binary.tar.gz", head.tobuf(), 260)
        with pytest.raises(ValueError, match="a decompression bomb"):
            load("cifar10", "test", tmp_path)

    def test_a_member_larger_than_it_can_be(self, tmp_path: Path) -> None:
        tar(tmp_path / "cifar-10-binary.tar.gz", {"cifar-10-batches-bin/test_batch.bin": bytes(4 * 3073 + 1)})
        with pytest.raises(ValueError, match="claims 12293 bytes where at most 12292"):
            load("cifar10", "test", tmp_path)

    def test_idx_that_unpacks_to_more_than_it_claims(self, tmp_path: Path) -> None:
        (tmp_path / "mnist").mkdir()
        self.zeros(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", struct.pack(">4I", 0x803, 2, 28, 28), 20)
        (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + bytes(2))
        with pytest.raises(ValueError, match="unpacks to more than 1584 bytes"):
            load("mnist", "test", tmp_path)

    def test_idx_that_claims_more_than_there_can_be(self, tmp_path: Path) -> None:
        (tmp_path / "mnist").mkdir()
        self.zeros(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", struct.pack(">4I", 0x803, 0xFFFFFFFF, 28, 28), 20)
        (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + bytes(2))
        with pytest.raises(ValueError, match="byte 4: it claims 4294967295 items"):
            load("mnist", "test", tmp_path)

    def test_an_npz_of_zeros(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "mine.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # noqa: SIM117
            with archive.open("images.npy", "w") as file:
                head = {"descr": "|u1", "fortran_order": False, "shape": (1 << 20, 3, 32, 32)}
                np.lib.format.write_array_header_1_0(file, head)  # type: ignore[no-untyped-call, unused-ignore]
                for _ in range(300):
                    file.write(bytes(1 << 20))
        with pytest.raises(ValueError, match="a decompression bomb"):
            load("mine.npz", "all", tmp_path)

    def test_a_png_of_too_many_pixels(self, tmp_path: Path) -> None:
        def chunk(kind: bytes, content: bytes) -> bytes:
            return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

        head = struct.pack(">2I5B", 60_000, 60_000, 8, 2, 0, 0, 0)
        ends = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
        (tmp_path / "mine" / "a").mkdir(parents=True)
        (tmp_path / "mine" / "a" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + ends)
        with pytest.raises(ValueError, match=r"x\.png is damaged at byte \d+: .*decompression bomb"):
            load("mine", "all", tmp_path)

    def test_a_matrix_that_claims_more_than_the_file_can_hold(self, tmp_path: Path) -> None:
        (tmp_path / "svhn").mkdir()
        file = tmp_path / "svhn" / "test_32x32.mat"
        savemat(file, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)})
        content = file.read_bytes()
        for old, new in (((32, 32, 3, 2), (32, 32, 3, 90_000)), ((2, 1), (90_000, 1))):
            sides = f"<{len(old)}i"
            assert content.count(struct.pack(sides, *old)) == 1
            content = content.replace(struct.pack(sides, *old), struct.pack(sides, *new))
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"byte 128: a matrix of shape .* has 6144 bytes"):
            load("svhn", "test", tmp_path)

    def test_a_matrix_that_unpacks_to_more_than_there_can_be(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(_svhn, "_MOST", 1000)
        (tmp_path / "svhn").mkdir()
        content = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)}
        savemat(tmp_path / "svhn" / "test_32x32.mat", content, do_compression=True)
        with pytest.raises(ValueError, match=r"byte 128: .* unpacks to more than 1000 bytes"):
            load("svhn", "test", tmp_path)

    @staticmethod
    def zeros(path: Path, head: bytes, megabytes: int) -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(head)
            for _ in range(megabytes):
                file.write(bytes(1 << 20))


def test_an_image_just_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine" / "a").mkdir(parents=True)
    Image.new("L", (10, 10)).save(tmp_path / "mine" / "a" / "x.png")
    monkeypatch.setattr(_images, "MOST_PIXELS", 100)
    assert len(load("mine", "all", tmp_path).images) == 1
    monkeypatch.setattr(_images, "MOST_PIXELS", 99)
    with pytest.raises(ValueError, match="it has 10 × 10 pixels, and at most 99 are read; scale it down"):
        load("mine", "all", tmp_path, size=5)


def test_an_image_format_that_is_a_program_stays_closed(tmp_path: Path) -> None:
    (tmp_path / "mine" / "a").mkdir(parents=True)
    picture = tmp_path / "mine" / "a" / "x.png"
    Image.new("RGB", (8, 8)).save(picture, "EPS")
    with pytest.raises(ValueError, match="not in an image format we read"):
        load("mine", "all", tmp_path)


@pytest.mark.parametrize("name", ["../images.npy", "/images.npy"])
def test_an_npz_with_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(ValueError, match="leads out of the archive"):
        load("mine.npz", "all", tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_of_objects_is_refused(save: Callable[..., None], tmp_path: Path) -> None:
    save(tmp_path / "mine.npz", images=np.array([Runs(tmp_path / "trace")], dtype=object), labels=np.array([0]))
    with pytest.raises(ValueError, match="Python objects"):
        load("mine.npz", "all", tmp_path)
    assert not (tmp_path / "trace").exists()


def test_a_zip_member_larger_than_an_image_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny-imagenet-200/wnids.txt", bytes(5 << 20))
    with pytest.raises(ValueError, match="claims 5242880 bytes"):
        load("tiny-imagenet", "test", tmp_path)
