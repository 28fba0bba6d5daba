"""Mutation testing: small mistakes planted in the source, one at a time, and whether a test sees each.

    python tools/mutate.py OUT [--mutants 224] [--seed 0] [--rooms scores,metrics] [--survivors]

OUT keeps a copy of the tree (the work tree is never touched), the lines that each test runs, and mutants.jsonl, one
line for each mutant. The same command resumes. `--survivors` tries the surviving mutants again, with the tests of now.
A mutant is tried with the tests that run its line, then with the other tests of those files. The snapshot of the
published tables is no test and takes no part; nor do slow tests. POSIX only: each run is forked from a process that
has imported the libraries.
"""

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

ROOMS = ("scores", "calibrators", "metrics", "heads", "rows", "claims", "benchmark")
USERS = ("baselines", "recommend", "edits", "report_tables", "report", "cli_calibrate")
"""Test files of other rooms that look closely at what these rooms compute."""
SECONDS = 60.0
"""Tests are tried until they computed so long together when they were recorded."""
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
    last_line: int
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
            yield Mutant(file, node.lineno, node.end_lineno, start, end, kind, text[start:end].decode(), after)


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


class Recorder:
    """A pytest plugin: the seconds that each test computes, and which test a line belongs to."""

    def __init__(self, coverage: Any) -> None:
        self.coverage, self.seconds = coverage, dict[str, float]()

    def pytest_runtest_setup(self, item: Any) -> None:
        self.coverage.switch_context(item.nodeid)
        self.seconds[item.nodeid] = -time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = self.seconds.get(nodeid, -time.process_time()) + time.process_time()


def run_pytest(*arguments: str, plugins: tuple[Any, ...] = ()) -> int:
    """The exit code of pytest in this process."""
    import pytest

    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", *arguments], plugins=plugins))


def record(copy: Path, tests: str, path: Path) -> int:
    """Write the seconds of the tests of one file or folder, and the lines of the rooms that they run."""
    from coverage import Coverage

    watch = Coverage(data_file=None, config_file=False, source=[f"src/shiftprism/{room}" for room in ROOMS])
    recorder = Recorder(watch)
    watch.start()
    code = run_pytest(tests, plugins=(recorder,))
    watch.stop()
    data, lines = watch.get_data(), {}
    for file in data.measured_files():
        found = {line: list(filter(None, names)) for line, names in data.contexts_by_lineno(file).items()}
        lines[str(Path(file).relative_to(copy))] = {line: names for line, names in found.items() if names}
    if code == 0:
        path.write_text(json.dumps({"seconds": recorder.seconds, "lines": lines}))
    return code


def run_forked(copy: Path, log: Path, work: Callable[[], int], limit: float) -> int | None:
    """The exit code of `work` in a process that imports the package from the copy; None if it computes too long."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (round(limit), round(limit) + 5))
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(copy)
        sys.path.insert(0, str(copy / "src"))
        code = 3
        try:
            code = work()
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    waiting = range(round(20 * 20 * limit))  # a busy machine is slow; a process that sleeps computes nothing
    for _ in waiting:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Tests:
    """What the tests of the copy run, recorded once for each test file and version of the source."""

    def __init__(self, out: Path) -> None:
        self.copy = out / "copy"
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        source = b"".join(file.read_bytes() for file in sorted((self.copy / "src").rglob("*.py")))
        files = [f"tests/test_{name}.py" for name in USERS]
        for room in ROOMS:
            mirrors = sorted(str(path.relative_to(self.copy)) for path in self.copy.glob(f"tests/test_{room}*.py"))
            files += [f"src/shiftprism/{room}", *mirrors]
        for tests in files:
            own = b"" if tests.startswith("src") else (self.copy / tests).read_bytes()
            path = out / f"{tests.replace('/', '-')}-{hashlib.sha256(source + own).hexdigest()[:8]}.json"
            if not path.exists():
                print(f"recording {tests}", flush=True)
                if run_forked(self.copy, out / "record.log", partial(record, self.copy, tests, path), 3600) != 0:
                    raise SystemExit(f"{tests} fails without a mutant: see {out}/record.log")
            recorded = json.loads(path.read_text())
            self.seconds |= recorded["seconds"]
            for file, lines in recorded["lines"].items():
                for line, names in lines.items():
                    self.lines[file][int(line)] |= set(names)

    def choose(self, mutant: Mutant) -> list[str]:
        """Tests that run the mutant's line, quick files first; then others of those files: they share its fixtures."""
        lines = self.lines[mutant.file]
        direct = set[str]().union(*(lines[n] for n in range(mutant.line, mutant.last_line + 1)))
        direct = direct or set[str]().union(*lines.values())  # what an import runs belongs to no test
        by_file = defaultdict[str, list[str]](list)
        for test in self.seconds:
            by_file[test.partition("::")[0]].append(test)
        chosen, spent = list[str](), 0.0
        for own in (direct, set(self.seconds) - direct):
            parts = [[test for test in tests if test in own] for tests in by_file.values() if direct & set(tests)]
            parts.sort(key=lambda part: sum(self.seconds[test] for test in part))
            for test in chain.from_iterable(parts):
                spent += self.seconds[test]
                if not chosen or spent < SECONDS:
                    chosen.append(test)
        return chosen


def try_mutant(mutant: Mutant, tests: Tests, out: Path) -> dict[str, Any]:
    """Whether a test sees the mutant, and which."""
    began, path, log = time.monotonic(), tests.copy / mutant.file, out / "mutant.log"
    chosen, source = tests.choose(mutant), path.read_bytes()
    limit = 30 + 4 * sum(tests.seconds[test] for test in chosen)
    log.write_text("")
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
    code = run_forked(tests.copy, log, partial(run_pytest, *chosen), limit) if chosen else 0
    path.write_bytes(source)
    result = "timeout" if code is None else "killed" if code else "survived"
    failed = [line.split(" - ")[0] for line in log.read_text().splitlines() if line.startswith(("FAILED", "ERROR"))]
    about = {"key": mutant.key, "room": mutant.file.split("/")[2], "result": result, "by": failed[:1]}
    return about | {"code": code, "tests": len(chosen), "seconds": round(time.monotonic() - began, 1)}


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


def main() -> None:
    """Draw, try, and print the share that was killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mutants", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--survivors", action="store_true", help="try the surviving mutants again")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "src"}
    sys.dont_write_bytecode = True  # a stale .pyc would hide a mutant
    for name in ("matplotlib.pyplot", "pytest", "scipy.stats", "sklearn.datasets", "torch", "typer"):
        importlib.import_module(name)  # once, for all processes that are forked
    out, rooms = options.out.resolve(), options.rooms.split(",")
    shutil.rmtree(out / "copy", ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "demo")
    shutil.copytree(Path(__file__).resolve().parent.parent, out / "copy", ignore=ignored)
    mutants = draw(rooms, out / "copy", options.mutants, options.seed)
    tests, log = Tests(out), out / "mutants.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    logged = {entry["key"]: entry for entry in map(json.loads, lines)}
    for number, mutant in enumerate(mutants, 1):
        known = logged.get(mutant.key, {}).get("result")
        if known is None or (options.survivors and known == "survived"):
            entry = logged[mutant.key] = try_mutant(mutant, tests, out)
            with log.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            print(f"{number} {entry['result']:8} {entry['seconds']:6.1f} s  {mutant.key}", flush=True)
    for room in (*rooms, ""):
        own = Counter(logged[mutant.key]["result"] for mutant in mutants if f"shiftprism/{room}" in mutant.file)
        caught = own["killed"] + own["timeout"]
        print(f"{room or 'all':12} {caught} of {own.total()} killed ({100 * caught / max(own.total(), 1):.0f} %)")


if __name__ == "__main__":
    main()
