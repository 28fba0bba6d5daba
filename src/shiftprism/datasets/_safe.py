"""Reading bytes that may be cut, damaged or hostile: sizes are checked before anything is trusted or allocated."""

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from shiftprism._files import check_file
from shiftprism._npz import check_name, damage_error

Bytes = NDArray[np.uint8]


def map_bytes(path: Path, size: int) -> Bytes:
    """The bytes of a file that must have exactly `size` of them, memory-mapped. Writing to them does not change it."""
    actual = check_file(path).stat().st_size
    if actual != size:
        raise damage_error(path, min(actual, size), f"it has {actual} bytes where there should be {size}")
    # Copy on write rather than read-only: torch accepts the array, and the file stays as it is.
    return np.memmap(path, np.uint8, "c")


def read_bytes(path: Path, most: int) -> bytearray:
    """All bytes of a file, which may have at most `most`."""
    size = check_file(path).stat().st_size
    if size > most:
        raise damage_error(path, most, f"it has {size} bytes where at most {most} can belong to it")
    return bytearray(path.read_bytes())


class LimitedStream:
    """A stream that gives at most `most` bytes in all, whatever the headers in it promise."""

    def __init__(self, stream: Any, most: int, path: Path, raw: BinaryIO) -> None:
        self.stream, self.left, self.most, self.path, self.raw = stream, most, most, path, raw

    def read(self, count: int) -> bytes:
        """At most `count` further bytes."""
        block: bytes = self.stream.read(count)
        self.left -= len(block)
        if self.left < 0:
            problem = f"it unpacks to more than {self.most} bytes, a decompression bomb"
            raise damage_error(self.path, self.raw.tell(), problem)
        return block

    def drain(self) -> None:
        """Read to the end, where gzip keeps its checksum."""
        while self.read(1 << 20):
            pass


def gunzip(path: Path, size: int) -> Bytes:
    """The bytes in a gzip file, which must be exactly `size`."""
    with check_file(path).open("rb") as raw:
        try:
            with gzip.open(raw) as stream:
                # One byte more than expected shows that a file is longer, without unpacking all of a bomb.
                content = bytearray(stream.read(size + 1))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise damage_error(path, raw.tell(), f"the gzip stream is broken ({error})") from error
    if len(content) != size:
        actual = f"more than {size}" if len(content) > size else str(len(content))
        raise damage_error(path, path.stat().st_size, f"it unpacks to {actual} bytes where there should be {size}")
    return np.frombuffer(content, np.uint8)


def read_tar(path: Path, wanted: Mapping[str, int], most: int) -> dict[str, bytearray]:
    """The members named in `wanted`, each at most so many bytes, out of a .tar.gz that unpacks to at most `most`.

    They come in the order of `wanted`, whatever their order in the archive. Nothing is written to disk. An archive with
    a link, or with a name that leads out of it, is refused as a whole.
    """
    members: dict[str, bytearray] = {}
    with check_file(path).open("rb") as raw:
        try:
            with gzip.open(raw) as unzipped:
                # "r|" reads front to back, so that the limit counts every byte, also of members that are skipped.
                stream = LimitedStream(unzipped, most, path, raw)
                with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]  # it only reads
                    for member in archive:
                        check_member(path, member, raw.tell())
                        if member.isfile() and member.name in wanted:
                            members[member.name] = _read_member(path, archive, member, wanted[member.name], raw.tell())
                stream.drain()
        except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
            raise damage_error(path, raw.tell(), f"the archive is broken ({error})") from error
    for name in wanted:
        if name not in members:
            raise damage_error(path, path.stat().st_size, f"it ends without {name}")
    return {name: members[name] for name in wanted}


def check_member(path: Path, member: tarfile.TarInfo, byte: int) -> None:
    """Refuse an archive member that is a link or a device, or whose name leads out of the archive."""
    check_name(path, member.name, byte)
    if not (member.isfile() or member.isdir()):
        raise damage_error(path, byte, f"{member.name!r} is a link or a device, which no data set needs")


def _read_member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, most: int, byte: int) -> bytearray:
    if member.size > most:
        problem = f"{member.name} claims {member.size} bytes where at most {most} can belong to it"
        raise damage_error(path, byte, problem)
    file = archive.extractfile(member)
    if file is None:  # only for links and folders, which `check_member` refused
        raise AssertionError
    return bytearray(file.read())
