"""Mutation testing: small mistakes planted in the source, one at a time, and whether a test sees each.

    python tools/mutate.py OUT [--mutants 224] [--seed 0] [--rooms scores,metrics] [--survivors]

OUT keeps a copy of the tree (the work tree is never touched), the lines that each test runs, and mutants.jsonl, one
line for each mutant. The same command resumes. `--survivors` tries the surviving mutants again, with the tests of now.
A mutant is tried with the tests that run its line, then with the other tests of those files, quick ones first; the
first failure ends it. The snapshot of the published tables is no test and takes no part; nor do tests that compute
long, marked slow or not: the share that is killed is what quick tests see. POSIX only: each run is forked from a
process that has imported the libraries.
"""

import argparse
import compileall
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from py_compile import PycInvalidationMode
from types import SimpleNamespace
from typing import Any

from mutants import Mutant, draw

ROOMS = ("scores", "calibrators", "metrics", "heads", "rows", "claims", "benchmark")
USERS = ("recommend", "edits", "report_tables", "cli_calibrate")
"""Test files of other rooms that look closely at what these rooms compute: for those that survive."""
LONGEST = 12.0
"""Seconds that a test may compute, its fixtures included, to take part."""
SECONDS = 10.0
"""Tests are tried until they computed so long together when they were recorded; on survivors three times as long."""
QUICK = 0.5
"""Tests that compute less are tried before all others."""


LIBRARIES = (
    *(
        "coverage",
        "hypothesis.strategies",
        "hypothesis.extra.numpy",
        "matplotlib.pyplot",
        "pytest",
        "safetensors.torch",
    ),
    *("scipy.optimize", "scipy.stats", "sklearn.datasets", "sklearn.metrics", "torch", "torch.export", "typer.testing"),
)
"""Imported once, for all processes that are forked."""


class TooLong(BaseException):
    """A test has computed too long; no `except Exception` of the source stops it."""


def computed() -> float:
    """Seconds that this process and those it has waited for computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Watch:
    """A plugin: ends a test that computes longer than its limit; hypothesis keeps the first failure as it is."""

    def __init__(self, limits: dict[str, float]) -> None:
        self.limits, self.ended = limits, set[str]()

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", settings(), phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutants")

    def pytest_runtest_setup(self, item: Any) -> None:
        def end(*_: object) -> None:
            self.ended.add(item.nodeid)
            raise TooLong(item.nodeid)

        signal.signal(signal.SIGPROF, end)
        signal.setitimer(signal.ITIMER_PROF, self.limits.get(item.nodeid, LONGEST), 0.5)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def run_pytest(*arguments: str, plugins: Sequence[object]) -> int:
    """The exit code of pytest in this process."""
    import pytest

    off = ("cacheprovider", "cov", "xdist")
    words = ["-q", "--assert=plain", "--tb=line", *chain.from_iterable(("-p", f"no:{name}") for name in off)]
    return int(pytest.main([*words, *arguments], plugins=plugins))


def record(copy: Path, tests: str, path: Path) -> int:
    """Write how long each test of a file or folder computes, and which lines of the rooms it runs."""
    from coverage import Coverage

    watch = Coverage(data_file=None, config_file=False, source=[f"src/shiftprism/{room}" for room in ROOMS])
    seconds, lines = dict[str, float](), {}

    limits, failed = Watch({}), set[str]()

    def start(item: Any) -> None:
        watch.switch_context(item.nodeid)
        seconds[item.nodeid] = -computed()

    def end(nodeid: str) -> None:
        seconds[nodeid] = seconds.get(nodeid, -computed()) + computed()

    def note(report: Any) -> None:
        if report.failed:
            failed.add(report.nodeid)

    plugin = SimpleNamespace(pytest_runtest_setup=start, pytest_runtest_logfinish=end, pytest_runtest_logreport=note)
    watch.start()
    code = run_pytest(tests, "-k", "not export", plugins=[plugin, limits])  # exports say little and compute long
    watch.stop()
    if limits.ended and code == 1:  # whatever else failed stood behind a fixture that was ended
        code = 0
    out = failed | {name for name, spent in seconds.items() if spent > LONGEST}
    print(f"{len(out)} of {len(seconds)} take no part:", *sorted(out), sep="\n  ")
    seconds = {name: spent for name, spent in seconds.items() if name not in out}
    for file in watch.get_data().measured_files():
        found = watch.get_data().contexts_by_lineno(file)
        lines[str(Path(file).relative_to(copy))] = {
            line: [name for name in names if name in seconds] for line, names in found.items()
        }
    if code == 0:
        path.write_text(json.dumps({"seconds": seconds, "lines": lines}))
    return code


def run_forked(copy: Path, log: Path, work: Callable[[], int], limit: int) -> int:
    """The exit code of `work` in a process that imports the package from the copy; < 0 if it computes too long."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        signal.alarm(3600)  # one that sleeps computes nothing; a busy machine is slow, or pauses it
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
    status = os.waitpid(child, 0)[1]
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started and left behind
    return os.waitstatus_to_exitcode(status)


class Tests:
    """What the tests of the copy run, recorded once for each test file and version of the source."""

    def __init__(self, out: Path, rooms: Sequence[str], users: bool) -> None:
        self.copy, self.budget = out / "copy", 3 * SECONDS if users else SECONDS
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        source = b"".join(file.read_bytes() for file in sorted((self.copy / "src").rglob("*.py")))
        files = [f"tests/test_{name}.py" for name in USERS if users]
        for room in rooms:
            mirrors = sorted(str(path.relative_to(self.copy)) for path in self.copy.glob(f"tests/test_{room}*.py"))
            files += [f"src/shiftprism/{room}", *mirrors]
        for tests in files:
            own = (self.copy / tests).read_bytes() if tests.endswith(".py") else b""
            path = out / f"{tests.replace('/', '-')}-{hashlib.sha256(source + own).hexdigest()[:8]}.json"
            if not path.exists():
                print(f"recording {tests}", flush=True)
                log = out / f"record-{tests.replace('/', '-')}.log"
                if run_forked(self.copy, log, partial(record, self.copy, tests, path), 3600) != 0:
                    raise SystemExit(f"{tests} fails without a mutant: see {log}")
            recorded = json.loads(path.read_text())
            self.seconds |= recorded["seconds"]
            for file, lines in recorded["lines"].items():
                for line, names in lines.items():
                    self.lines[file][int(line)] |= set(names)

    def choose(self, mutant: Mutant) -> list[str]:
        """Tests that run the mutant's line, quick ones first; then others of those files: they share its fixtures."""
        lines, room = self.lines[mutant.file], mutant.file.split("/")[2]
        # what an import runs belongs to no test: those of the file are tried, or of the room
        direct = lines[mutant.line] or set[str]().union(*lines.values())
        direct = direct or {test for test in self.seconds if test.startswith(f"tests/test_{room}")}
        by_file = defaultdict[str, list[str]](list)
        for test in self.seconds:
            by_file[test.partition("::")[0]].append(test)
        chosen, spent = list[str](), 0.0
        quick = {test for test, seconds in self.seconds.items() if seconds < QUICK}
        for own in (direct & quick, direct - quick, set(self.seconds) - direct):
            parts = [[test for test in tests if test in own] for tests in by_file.values() if direct & set(tests)]
            parts.sort(key=lambda part: sum(self.seconds[test] for test in part))
            for test in chain.from_iterable(sorted(part, key=self.seconds.__getitem__) for part in parts):
                spent += self.seconds[test]
                if not chosen or spent < self.budget:
                    chosen.append(test)
        return chosen


def try_mutant(mutant: Mutant, tests: Tests, out: Path) -> dict[str, Any]:
    """Whether a test sees the mutant, and which."""
    began, path, log = time.monotonic(), tests.copy / mutant.file, out / "mutant.log"
    chosen, source = tests.choose(mutant), path.read_bytes()
    limit = 30 + round(2 * sum(tests.seconds[test] for test in chosen))
    watch = Watch({test: 4 + 4 * tests.seconds[test] for test in chosen})
    log.write_text("")
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
    code = run_forked(tests.copy, log, partial(run_pytest, "-x", *chosen, plugins=[watch]), limit) if chosen else 0
    path.write_bytes(source)
    result = "timeout" if code < 0 else "killed" if code else "survived"
    failed = [line.split(" - ")[0] for line in log.read_text().splitlines() if line.startswith(("FAILED", "ERROR"))]
    about = {"key": mutant.key, "room": mutant.file.split("/")[2], "result": result, "by": failed[:1]}
    return about | {"code": code, "tests": len(chosen), "seconds": round(time.monotonic() - began, 1)}


def describe(entries: list[dict[str, Any]], rooms: Sequence[str], judged: Path) -> str:
    """A table of the rooms and a list of survivors, each with what a reader wrote of it in judged.json, {key: text}."""
    words = json.loads(judged.read_text(encoding="utf-8")) if judged.exists() else {}
    lines = ["| room | mutants | killed | of these by a time limit | share |", "|---|--:|--:|--:|--:|"]
    for room in (*rooms, "all"):
        own = Counter(entry["result"] for entry in entries if room in (entry["room"], "all"))
        caught, total = own["killed"] + own["timeout"], own.total()
        lines.append(f"| {room} | {total} | {caught} | {own['timeout']} | {100 * caught / max(total, 1):.0f} % |")
    survivors = [entry["key"] for entry in entries if entry["result"] == "survived"]
    return "\n".join([*lines, "", *(f"- `{key}`: {words.get(key, 'not judged yet')}" for key in survivors)])


def main() -> None:
    """Draw, try, and print the share that was killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mutants", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--survivors", action="store_true", help="try the surviving mutants again")
    options = parser.parse_args()
    sys.dont_write_bytecode = True  # a stale .pyc would hide a mutant
    for name in LIBRARIES:
        importlib.import_module(name)
    out, rooms = options.out.resolve(), options.rooms.split(",")
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{out}/copy/src"}
    shutil.rmtree(out / "copy", ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "demo")
    shutil.copytree(Path(__file__).resolve().parent.parent, out / "copy", ignore=ignored)
    for part in ("src", "tests", "tools"):  # what is not mutated is compiled once; a change of the source is noticed
        compileall.compile_dir(out / "copy" / part, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    mutants = draw(rooms, out / "copy", options.mutants, options.seed)
    tests, log = Tests(out, rooms, options.survivors), out / "mutants.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    logged = {entry["key"]: entry for entry in map(json.loads, lines)}
    for number, mutant in enumerate(mutants, 1):
        known = logged.get(mutant.key, {}).get("result")
        if known is None or (options.survivors and known == "survived"):
            entry = logged[mutant.key] = try_mutant(mutant, tests, out)
            with log.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            print(f"{number} {entry['result']:8} {entry['seconds']:6.1f} s  {mutant.key}", flush=True)
    print(describe([logged[mutant.key] for mutant in mutants], rooms, out / "judged.json"))


if __name__ == "__main__":
    main()
