"""A reader of pickled CIFAR batches that can make arrays and plain containers, and nothing else.

`pickle` would import and call whatever a file names. Here `pickletools` only splits the file into its instructions, and
the few that build numbers, strings, lists, tuples, dicts and byte arrays are carried out by hand. Any other is refused,
with its byte.
"""

import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from shiftprism.datasets._safe import damaged

_LITERALS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
# The names a pickled array uses. They are only recognised: none of them is imported or called.
_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_MARK = object()


class _Name(str):
    """One of the known names, as it lies on the stack."""


class _Type(str):
    """An element type, such as u1."""


class _Array:
    """An array under construction: empty until its BUILD instruction brings shape, type and bytes."""

    value: "np.ndarray[Any, Any] | None" = None


class _Refused(Exception):
    """An instruction that does not belong in a file of arrays and plain containers."""


def read(content: "bytes | bytearray", where: str) -> Any:
    """The arrays and plain containers in a pickle; an error with the byte for anything else.

    >>> import pickle
    >>> read(pickle.dumps({"labels": [3, 1]}, protocol=2), "batch")
    {'labels': [3, 1]}
    >>> read(pickle.dumps(print, protocol=2), "batch")
    Traceback (most recent call last):
    ...
    ValueError: batch is damaged at byte 2: it asks for `__builtin__ print`, and only arrays and plain containers ...
    """
    machine = _Machine()
    position = 0
    try:
        for opcode, argument, found in pickletools.genops(bytes(content)):
            position = found or 0
            if opcode.name == "STOP":
                break
            machine.step(opcode.name, argument)
        return _finished(machine.stack.pop())
    except _Refused as error:
        raise damaged(where, position, f"it {error}, and only arrays and plain containers are read") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError, Warning) as error:
        raise damaged(where, position, f"not a readable pickle ({error})") from error


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[int(argument)])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_known(argument if name == "GLOBAL" else " ".join(self.take(2))))
        elif name == "REDUCE":
            stack.append(_called(*self.take(2)))
        elif name == "BUILD":
            target, state = self.take(2)
            stack.append(_built(target, state))
        elif name not in ("PROTO", "FRAME"):
            self.gather(name)

    def gather(self, name: str) -> None:
        """The instructions that put what is on the stack into containers."""
        stack = self.stack
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self.take(int(name[-1]))))
        elif name == "TUPLE":
            stack.append(tuple(self.since_mark()))
        elif name == "LIST":
            stack.append(self.since_mark())
        elif name in ("APPEND", "APPENDS"):
            items = self.take(1) if name == "APPEND" else self.since_mark()
            _plain(stack[-1], list).extend(items)
        elif name in ("DICT", "SETITEM", "SETITEMS"):
            items = self.take(2) if name == "SETITEM" else self.since_mark()
            if name == "DICT":
                stack.append({})
            _plain(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        else:
            raise _Refused(f"has the instruction {name}")

    def take(self, count: int) -> list[Any]:
        """The last `count` things on the stack."""
        if len(self.stack) < count or any(item is _MARK for item in self.stack[-count:]):
            raise ValueError("an instruction finds too little on the stack")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def since_mark(self) -> list[Any]:
        """Everything after the last mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("a mark is missing")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items


def _plain(container: Any, kind: type) -> Any:
    if type(container) is not kind:
        raise _Refused(f"fills a {type(container).__name__} as if it were a {kind.__name__}")
    return container


def _known(name: str) -> _Name:
    if name not in _NAMES:
        raise _Refused(f"asks for `{name}`")
    return _Name(_NAMES[name])


def _called(name: Any, arguments: Any) -> Any:
    """What the known callables would have returned."""
    if isinstance(name, _Name) and isinstance(arguments, tuple):
        if name == "array":
            return _Array()
        if name == "dtype" and arguments and isinstance(arguments[0], str):
            return _Type(arguments[0])
        if name == "encode" and len(arguments) == 2 and arguments[1] == "latin1":
            return arguments[0].encode("latin-1")
    raise _Refused("makes a call")


def _built(target: Any, state: Any) -> Any:
    """An array given its shape, type and bytes; a type keeps its default byte order, which u1 does not have."""
    if isinstance(target, _Type):
        return target
    if not isinstance(target, _Array) or not isinstance(state, tuple) or len(state) != 5:
        raise _Refused("sets the state of an object")
    _, shape, kind, fortran, content = state
    if kind != "u1" or fortran is not False:
        raise _Refused(f"holds an array of type {kind!s:.20}")
    if isinstance(content, str):  # Python 2 wrote bytes as a string, which pickletools reads as Latin-1
        content = content.encode("latin-1")
    target.value = np.frombuffer(bytearray(content), np.uint8).reshape(shape)
    return target


def _finished(item: Any) -> Any:
    """`item` with finished arrays in the place of those under construction, one level deep: batches are flat dicts."""
    if isinstance(item, dict):
        return {key: value.value if isinstance(value, _Array) else value for key, value in item.items()}
    return item.value if isinstance(item, _Array) else item
