"""Reading bytes that may be cut, damaged or hostile: sizes are checked before anything is believed or allocated."""

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

Bytes = NDArray[np.uint8]


def damaged(file: "Path | str", byte: int, problem: str) -> ValueError:
    """The error for a file that is not what it should be, to be raised by the caller.

    >>> raise damaged("train.bin", 3073, "label 12 where there are 10 classes")
    Traceback (most recent call last):
    ...
    ValueError: train.bin is damaged at byte 3073: label 12 where there are 10 classes; replace it with a whole copy.
    """
    return ValueError(f"{file} is damaged at byte {byte}: {problem}; replace it with a whole copy.")


def mapped(path: Path, size: int) -> Bytes:
    """The bytes of a file that must have exactly `size` of them, memory-mapped; what is written stays in memory."""
    found = path.stat().st_size
    if found != size:
        raise damaged(path, min(found, size), f"it has {found} bytes where there should be {size}")
    return np.memmap(path, np.uint8, "c")


def whole(path: Path, most: int) -> bytearray:
    """All bytes of a small file, refused above `most`."""
    found = path.stat().st_size
    if found > most:
        raise damaged(path, most, f"it has {found} bytes where at most {most} can belong to it")
    return bytearray(path.read_bytes())


class Limited:
    """A stream that refuses to give more than `most` bytes in all, whatever the headers in it promise."""

    def __init__(self, stream: Any, most: int, path: Path, raw: BinaryIO) -> None:
        self.stream, self.left, self.most, self.path, self.raw = stream, most, most, path, raw

    def read(self, count: int) -> bytes:
        """At most `count` further bytes."""
        block: bytes = self.stream.read(count)
        self.left -= len(block)
        if self.left < 0:
            raise damaged(
                self.path, self.raw.tell(), f"it unpacks to more than {self.most} bytes, a decompression bomb"
            )
        return block

    def drain(self) -> None:
        """Read to the end, where gzip keeps its check sum."""
        while self.read(1 << 20):
            pass


def gunzipped(path: Path, size: int) -> Bytes:
    """The bytes in a gzip file, which must be exactly `size`."""
    with path.open("rb") as raw:
        try:
            with gzip.open(raw) as stream:
                content = bytearray(stream.read(size + 1))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise damaged(path, raw.tell(), f"the gzip stream breaks off ({error})") from error
    if len(content) != size:
        found = f"more than {size}" if len(content) > size else str(len(content))
        raise damaged(path, path.stat().st_size, f"it unpacks to {found} bytes where there should be {size}")
    return np.frombuffer(content, np.uint8)


def tar_members(path: Path, wanted: Mapping[str, int], most: int) -> dict[str, bytearray]:
    """The members named in `wanted`, each at most so many bytes, out of a .tar.gz that unpacks to at most `most`.

    Nothing is written to disk. An archive with a link, or with a name that leads out of it, is refused whole.
    """
    found: dict[str, bytearray] = {}
    with path.open("rb") as raw:
        try:
            with gzip.open(raw) as unzipped:
                stream = Limited(unzipped, most, path, raw)
                with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]  # it only reads
                    for member in archive:
                        check_member(path, member, raw.tell())
                        if member.isfile() and member.name in wanted:
                            found[member.name] = _member(path, archive, member, wanted[member.name], raw.tell())
                stream.drain()
        except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
            raise damaged(path, raw.tell(), f"the archive breaks off ({error})") from error
    for name in wanted:
        if name not in found:
            raise damaged(path, path.stat().st_size, f"it ends without {name}")
    return found


def opened_zip(path: Path) -> zipfile.ZipFile:
    """The zip file, to be closed by the caller, once the list of members at its end is found whole."""
    with unzipping(path, "the list of members at its end", path.stat().st_size):
        return zipfile.ZipFile(path)


@contextmanager
def unzipping(path: Path, what: str, byte: int) -> Iterator[None]:
    """Turns every way a zip file can fail into an error that names file and byte."""
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
        raise damaged(path, byte, f"{what} is not whole ({error or type(error).__name__})") from error


def check_member(path: Path, member: tarfile.TarInfo, byte: int) -> None:
    """Refuse an archive member that is a link or a device, or whose name leads out of the archive."""
    check_name(path, member.name, byte)
    if not (member.isfile() or member.isdir()):
        raise damaged(path, byte, f"{member.name!r} is a link or a device, which no data set needs")


def check_name(path: Path, name: str, byte: int) -> None:
    """Refuse the name of an archive member that leads out of the archive."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name:
        raise damaged(path, byte, f"the name {name!r} leads out of the archive")


def _member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, most: int, byte: int) -> bytearray:
    if member.size > most:
        raise damaged(path, byte, f"{member.name} claims {member.size} bytes where at most {most} can belong to it")
    file = archive.extractfile(member)
    if file is None:  # only for links and folders, which were refused
        raise AssertionError
    return bytearray(file.read())


def map_npy(path: Path, start: int = 0, length: int | None = None) -> NDArray[Any]:
    """The array of a `.npy` file, or of one that lies in an uncompressed archive, memory-mapped, never unpickled."""
    end = path.stat().st_size if length is None else start + length
    with path.open("rb") as file:
        file.seek(start)
        shape, fortran, dtype = npy_header(path, file)
        offset = file.tell()
    if dtype.hasobject:
        raise damaged(path, start, "it holds Python objects, which are never loaded")
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if offset + size != end or end > path.stat().st_size or size == 0:
        has = min(end, path.stat().st_size) - offset
        raise damaged(path, offset + min(size, has), f"the array has {has} bytes where shape {shape} needs {size}")
    return np.memmap(path, dtype, "c", offset, shape, "F" if fortran else "C")


def npy_header(where: "Path | str", file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type from the head of a `.npy` stream, which is left at the first element."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        return readers[version](file)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    except (ValueError, KeyError, SyntaxError, TypeError, TokenError) as error:
        raise damaged(where, file.tell(), f"not the head of a .npy array ({error})") from error
