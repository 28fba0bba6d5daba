"""The mistakes that tools/mutate.py plants: each is one replacement in one file.

Comparisons, arithmetic, signs, `not`, `and`, constants, axes, slice edges, minimum and maximum, branches, dropped
keywords, and deleted calls and checks. Annotations, decorators, docstrings, texts for users and `__repr__` stay.
"""

import ast
import random
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

_TEXTS = {"got", "advice", "expected", "message"}
"""Names of texts for users."""
_SWAPS: dict[Any, Any] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_SWAPS |= {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.And: ast.Or}
_SWAPS |= {after: before for before, after in _SWAPS.items()}
_SWAPS |= {ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr}
_EXTREMES = {"min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum", "floor": "ceil"}
_EXTREMES |= {after: before for before, after in _EXTREMES.items()}


class Mutant(NamedTuple):
    """One replacement in one file; `start` and `end` count bytes."""

    file: str
    line: int
    start: int
    end: int
    kind: str
    before: str
    after: str

    @property
    def key(self) -> str:
        """Its place and change."""
        return f"{self.file}:{self.line} {self.kind}: {self.before} -> {self.after} @{self.start}"


def list_mutants(source: str, file: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    text, starts = source.encode(), [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _walk(ast.parse(source)):
        for kind, after in _change(node):
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            yield Mutant(file, node.lineno, start, end, kind, text[start:end].decode(), after)


def _walk(node: ast.AST) -> Iterator[Any]:
    """The nodes that a mutant may change: no annotations, decorators, texts for users or `__repr__`."""
    if isinstance(node, ast.JoinedStr | ast.Assert) or (isinstance(node, ast.FunctionDef) and node.name == "__repr__"):
        return
    if isinstance(node, ast.Assign) and _TEXTS & {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}:
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list") and not isinstance(node, ast.Raise):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child)


def _change(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(kind, new text) of each mistake that can be made at a node."""
    match node:
        case ast.Raise():
            yield "raise deleted", "pass"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement deleted", "pass"
        case ast.Compare(left=left, ops=ops, comparators=others):
            for i, op in enumerate(ops):
                changed = [*ops[:i], _SWAPS[type(op)](), *ops[i + 1 :]]
                yield "comparison", f"({ast.unparse(ast.Compare(left, changed, others))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPS and not _is_text(left, right):
            yield "arithmetic", f"({ast.unparse(ast.BinOp(left, _SWAPS[type(op)](), right))})"
        case ast.BoolOp(op=op, values=values):
            yield "and or", f"({ast.unparse(ast.BoolOp(_SWAPS[type(op)](), values))})"
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield "sign or not", f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() | float() as value):
            few = isinstance(value, int) and value < 10  # an axis, an index, a small count; 1 becomes 0
            yield "constant", repr((0 if value == 1 else value + 1) if few else 2 * value or 1.0)
        case ast.Slice(lower=lower, upper=upper, step=step):
            if lower:
                yield "slice", ast.unparse(ast.Slice(None, upper, step))
            if upper:
                yield "slice", ast.unparse(ast.Slice(lower, None, step))
                yield "slice", ast.unparse(ast.Slice(lower, ast.BinOp(upper, ast.Add(), ast.Constant(1)), step))
        case ast.IfExp(body=body, orelse=otherwise):
            yield "branch", f"({ast.unparse(body)})"
            yield "branch", f"({ast.unparse(otherwise)})"
        case ast.Call(func=function, args=arguments, keywords=keywords):
            before, dot, name = ast.unparse(function).rpartition(".")
            if name in _EXTREMES:
                other = ast.Name(f"{before}{dot}{_EXTREMES[name]}")
                yield "min max", ast.unparse(ast.Call(other, arguments, keywords))
            for i in range(len(keywords)):
                yield "keyword dropped", ast.unparse(ast.Call(function, arguments, keywords[:i] + keywords[i + 1 :]))


def _is_text(*sides: ast.AST) -> bool:
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str) for side in sides)


def draw(rooms: list[str], copy: Path, count: int, seed: int) -> list[Mutant]:
    """So many different mutants, drawn at random, as many from each room."""
    by_room = []
    for room in rooms:
        files = sorted((copy / "src/shiftprism" / room).glob("*.py"))
        found = [mutant for file in files for mutant in list_mutants(file.read_text(), str(file.relative_to(copy)))]
        random.Random(seed).shuffle(found)
        by_room.append(found)
        print(f"{room}: {len(found)} places for a mistake")
    return [mutant for each in zip_longest(*by_room) for mutant in each if mutant is not None][:count]
