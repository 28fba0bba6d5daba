"""CIFAR's pickled batches, read without running any code that a file names.

`pickle` by itself imports and calls whatever a file asks for, and a file of ten bytes can claim gigabytes of memory. So
a file is read in two passes. The first pass only lists the instructions, and refuses those that arrays, numbers,
strings, lists, tuples and dicts do not need. The second pass runs `pickle`, but the names that an array needs give
stand-ins of this module, and any other name is an error. So a file imports nothing and calls nothing of NumPy.
"""

import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from shiftprism._npz import damage_error
from shiftprism.datasets._safe import Bytes

_ALLOWED = {
    "PROTO", "FRAME", "STOP", "MARK", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
}  # fmt: skip
# An instruction of one byte can make an object of a hundred, and `pickle` allocates its memo up to the largest index in
# the file. CIFAR-100's training batch, three lists of 50,000 entries, has about 200,000 instructions.
_MOST_INSTRUCTIONS = 1 << 20
# An array takes six tuples. A nested tuple that is the key of a dict is hashed: each level may double the time, and
# many levels overflow the interpreter's stack.
_MOST_TUPLES = 24


class _Refused(Exception):
    """Something that does not belong into a file of arrays and plain containers."""


class _Array:
    """In the place of a NumPy array: empty until its BUILD instruction brings shape, type and bytes."""

    __slots__ = ("value",)
    value: "Bytes | None"

    def __init__(self, *arguments: Any) -> None:
        self.value = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        if not isinstance(kind, _Type) or kind.name != "u1" or fortran is not False:
            raise _Refused(f"holds an array of type {getattr(kind, 'name', kind)!s:.20}")
        if isinstance(content, str):  # Python 2 wrote bytes as a string, which is decoded as Latin-1
            content = content.encode("latin-1")
        self.value = np.frombuffer(bytearray(content), np.uint8).reshape(shape)


class _Type:
    """In the place of a NumPy dtype. Its state is the byte order, which u1 does not have."""

    __slots__ = ("name",)

    def __init__(self, name: str, *flags: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass


class _Callable:
    """In the place of a function or class: it can be called, but its attributes cannot be set."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __call__(self, *arguments: Any) -> Any:
        return self.make(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("sets the attributes of a function")


def _encode(text: str, codec: str) -> bytes:
    """How Python 3 writes bytes in the protocols of Python 2."""
    if codec != "latin1":
        raise _Refused(f"asks for the codec {codec!s:.20}")
    return text.encode(codec)


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _Callable(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _Callable(_Array),  # NumPy 2
    ("numpy", "ndarray"): None,  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _Callable(_Type),
    ("_codecs", "encode"): _Callable(_encode),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise _Refused(f"asks for `{module} {name}`")
        return _STAND_INS[module, name]


def read_pickle(content: "bytes | bytearray", where: str) -> Any:
    """The arrays and plain containers in a pickle; an error with the byte for anything else.

    >>> read_pickle(pickle.dumps({"labels": [3, 1]}, protocol=2), "batch")
    {'labels': [3, 1]}
    >>> read_pickle(pickle.dumps(print, protocol=2), "batch")
    Traceback (most recent call last):
    ...
    shiftprism._npz.DamagedFile: batch is damaged at byte 21: it asks for `__builtin__ print`, and only arrays ...
    """
    file = io.BytesIO(content)
    try:
        _check_instructions(file)
        file.seek(0)
        batch = _Unpickler(file, encoding="latin1").load()
    except _Refused as error:
        problem = f"it {error}, and only arrays and plain containers are read"
        raise damage_error(where, file.tell(), problem) from None
    except Exception as error:  # a broken pickle can raise almost anything
        raise damage_error(where, file.tell(), f"not a readable pickle ({error or type(error).__name__})") from error
    if not isinstance(batch, dict):
        return batch
    # A batch is a flat dict, so there are no arrays further down.
    return {key: value.value if isinstance(value, _Array) else value for key, value in batch.items()}


def _check_instructions(file: io.BytesIO) -> None:
    """The first pass. `pickletools` also checks that each argument, however long it claims to be, is in the file."""
    tuples = 0
    for count, (instruction, argument, _) in enumerate(pickletools.genops(file)):
        tuples += instruction.name.startswith("TUPLE")
        if instruction.name not in _ALLOWED:
            raise _Refused(f"has the instruction {instruction.name}")
        if count > _MOST_INSTRUCTIONS or tuples > _MOST_TUPLES:
            raise _Refused("has more instructions than a batch needs")
        if instruction.name.endswith("PUT") and int(argument or 0) > _MOST_INSTRUCTIONS:
            raise _Refused(f"has the memo index {argument}")
