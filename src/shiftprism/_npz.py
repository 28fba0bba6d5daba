"""Plain arrays from .npy and .npz files that may be cut, damaged or hostile; nothing is unpickled.

Sizes are checked before anything is trusted or allocated. An error names the file and the byte.
"""

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftprism._files import check_file

# Arrays that claim more than 256 MB in all, each more than a hundred times its packed size, are a decompression bomb.
_SMALL, _RATIO = 1 << 28, 100


class DamagedFile(ValueError):
    """A file that is not what its format promises."""

    problem = ""
    """The part of the message that says why."""


def damage_error(file: "Path | str", byte: int, problem: str) -> DamagedFile:
    """The error for a damaged file, to be raised by the caller.

    >>> str(damage_error("train.bin", 3073, "label 12 where there are 10 classes"))
    'train.bin is damaged at byte 3073: label 12 where there are 10 classes; replace it with a whole copy.'
    """
    error = DamagedFile(f"{file} is damaged at byte {byte}: {problem}; replace it with a whole copy.")
    error.problem = problem
    return error


def read_arrays(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name, or the `wanted` ones. Those that are not compressed are memory-mapped."""
    with open_zip(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        _check_sizes(path, archive.infolist())
        arrays = {name: _read_member(path, archive, member) for name, member in members.items() if wanted(name)}
    return {name: _to_native(array) for name, array in arrays.items()}


def _to_native(array: NDArray[Any]) -> NDArray[Any]:
    """The array as it is, unless torch could not take it: another machine's byte order, or more than 64 bits."""
    long = array.dtype.kind == "f" and array.dtype.itemsize > 8
    return array.astype(np.float64 if long else array.dtype.newbyteorder("="), copy=False)


def _check_sizes(path: Path, members: Iterable[zipfile.ZipInfo]) -> None:
    packed = [member for member in members if member.file_size > _RATIO * member.compress_size]
    if sum(member.file_size for member in packed) > _SMALL:
        most = max(packed, key=lambda member: member.file_size)
        problem = f"{most.filename} claims {most.file_size} bytes from {most.compress_size}, a decompression bomb"
        raise damage_error(path, most.header_offset, problem)


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
        UnicodeDecodeError,  # of a name in the list
    ) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise damage_error(path, byte, f"{what} is damaged ({reason})") from error


def check_name(path: Path, name: str, byte: int) -> None:
    """Refuse the name of an archive member that leads out of the archive."""
    parts = PurePosixPath(name.replace("\\", "/"))  # a backslash or a colon leads out on Windows
    if parts.is_absolute() or ".." in parts.parts or ":" in name:
        raise damage_error(path, byte, f"the name {name!r} leads out of the archive")


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    check_name(path, member.filename, member.header_offset)
    with zip_errors(path, member.filename, member.header_offset):
        if member.compress_type == zipfile.ZIP_STORED:
            return _map_stored(path, archive, member)
        with archive.open(member) as file:
            return _read_packed(path, file, member)


def _map_stored(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """A member that is stored uncompressed, memory-mapped."""
    with archive.open(member) as file:
        while file.read(1 << 20):  # to the end, where zipfile compares the checksum
            pass
    # The content follows a local header of 30 bytes, whose last four are the lengths of a name and of extra fields.
    with path.open("rb") as raw:
        raw.seek(member.header_offset + 26)
        name, extra = struct.unpack("<2H", raw.read(4))
    return map_npy(path, member.header_offset + 30 + name + extra, member.file_size)


def _read_packed(path: Path, file: Any, member: zipfile.ZipInfo) -> NDArray[Any]:
    shape, fortran, dtype = read_npy_header(f"{path}/{member.filename}", file)
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if dtype.hasobject or file.tell() + size != member.file_size:
        problem = f"{member.filename} of {member.file_size} bytes claims an array of {size}, or of Python objects"
        raise damage_error(path, member.header_offset, problem)
    return np.frombuffer(bytearray(file.read()), dtype).reshape(shape, order="F" if fortran else "C")
