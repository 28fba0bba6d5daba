"""Reading bytes that may be cut, damaged or hostile: sizes are checked before anything is trusted or allocated."""

import gzip
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from shiftprism._files import check_file

Bytes = NDArray[np.uint8]


def damage_error(file: "Path | str", byte: int, problem: str) -> ValueError:
    """The error for a damaged file, to be raised by the caller.

    >>> raise damage_error("train.bin", 3073, "label 12 where there are 10 classes")
    Traceback (most recent call last):
    ...
    ValueError: train.bin is damaged at byte 3073: label 12 where there are 10 classes; replace it with a whole copy.
    """
    return ValueError(f"{file} is damaged at byte {byte}: {problem}; replace it with a whole copy.")


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


def open_zip(path: Path) -> zipfile.ZipFile:
    """The zip file, to be closed by the caller; an error if the list of members at its end is damaged."""
    check_file(path)
    with zip_errors(path, "the list of members at its end", path.stat().st_size):
        return zipfile.ZipFile(path)


@contextmanager
def zip_errors(path: Path, what: str, byte: int) -> Iterator[None]:
    """Turn every error that reading a zip file can raise into one that names the file and the byte."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        struct.error,
    ) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise damage_error(path, byte, f"{what} is damaged ({reason})") from error


def check_member(path: Path, member: tarfile.TarInfo, byte: int) -> None:
    """Refuse an archive member that is a link or a device, or whose name leads out of the archive."""
    check_name(path, member.name, byte)
    if not (member.isfile() or member.isdir()):
        raise damage_error(path, byte, f"{member.name!r} is a link or a device, which no data set needs")


def check_name(path: Path, name: str, byte: int) -> None:
    """Refuse the name of an archive member that leads out of the archive."""
    parts = PurePosixPath(name.replace("\\", "/"))  # a backslash or a colon leads out on Windows
    if parts.is_absolute() or ".." in parts.parts or ":" in name:
        raise damage_error(path, byte, f"the name {name!r} leads out of the archive")


def _read_member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, most: int, byte: int) -> bytearray:
    if member.size > most:
        problem = f"{member.name} claims {member.size} bytes where at most {most} can belong to it"
        raise damage_error(path, byte, problem)
    file = archive.extractfile(member)
    if file is None:  # only for links and folders, which `check_member` refused
        raise AssertionError
    return bytearray(file.read())


def map_npy(path: Path, start: int = 0, length: int | None = None) -> NDArray[Any]:
    """The array of a `.npy` file, or of one that lies in an uncompressed archive, memory-mapped, never unpickled."""
    end = check_file(path).stat().st_size if length is None else start + length
    with path.open("rb") as file:
        file.seek(start)
        shape, fortran, dtype = read_npy_header(path, file)
        offset = file.tell()
    if dtype.hasobject:
        raise damage_error(path, start, "it holds Python objects, which are never loaded")
    size = dtype.itemsize * int(np.prod(shape, dtype=object))  # Python integers: a claimed shape may overflow int64
    if offset + size != end or end > path.stat().st_size or size == 0:
        has = min(end, path.stat().st_size) - offset
        raise damage_error(path, offset + min(size, has), f"the array has {has} bytes where shape {shape} needs {size}")
    return np.memmap(path, dtype, "c", offset=offset, shape=shape, order="F" if fortran else "C")


def read_npy_header(where: "Path | str", file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type from the header of a `.npy` stream, which is left at the first element."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        return readers[version](file)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    except (ValueError, KeyError, SyntaxError, TypeError, TokenError) as error:
        raise damage_error(where, file.tell(), f"not the header of a .npy array ({error})") from error
