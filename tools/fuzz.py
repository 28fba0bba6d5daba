"""Random mutations of every kind of file that is read, through the error boundary of the command line, in this process.

    python tools/fuzz.py [--cases 2000] [--seconds 3000] [--seed 0] [--only KIND]

A case damages one file of a valid set and runs a command that reads it. It counts
- tracebacks: an exception that left `main`, or an "unexpected" error, which has a traceback in a file;
- hangs: a case that took more than ten seconds;
- wrong exit codes: success though the command says that something is wrong, or none of those that it may end with;
- errors that are not one line, or that do not name the file.
Success alone is no fault: a mutation may leave a file valid (a space in a JSON file, a pixel of an image).
Where the command then answers as it did before, nothing was lost. Where it answers otherwise, the case is listed for a
person to judge, except for files whose format guards nothing, such as the pixels of a BMP: those are counted.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fuzz_files import UNGUARDED, Target, make_files

LIMIT = 10
"""Seconds a case may take."""


class Hang(BaseException):
    """Raised by the alarm; no `except Exception` catches it."""


def mutate(content: bytes, rng: random.Random, text: bool) -> bytes:
    """One to three random changes: bits, digits, cuts, insertions, repetitions, and odd values in a text."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        change = rng.choice((*CHANGES, *(3 * [_replace_value] if text else [])))
        change(changed, rng)
    return bytes(changed)


def _place(changed: bytearray, rng: random.Random) -> int:
    # half of the changes near the start, where headers are
    return rng.randrange(max(1, min(len(changed), 300 if rng.random() < 0.5 else len(changed))))


def _flip(changed: bytearray, rng: random.Random) -> None:
    if changed:
        changed[_place(changed, rng)] ^= 1 << rng.randrange(8)


def _cut(changed: bytearray, rng: random.Random) -> None:
    first = _place(changed, rng)
    del changed[first : None if rng.random() < 0.3 else first + rng.randint(1, 40)]


def _insert(changed: bytearray, rng: random.Random) -> None:
    at = _place(changed, rng)
    changed[at:at] = rng.choice(
        [rng.randbytes(rng.randint(1, 20)), b"[" * 2000, b"\xff\xfe", b"\n\n", b"NaN", b"1e999"]
    )


def _repeat(changed: bytearray, rng: random.Random) -> None:
    first = _place(changed, rng)
    changed[first:first] = changed[first : first + rng.randint(1, 200)]


def _overwrite(changed: bytearray, rng: random.Random) -> None:
    first = _place(changed, rng)
    changed[first : first + 4] = rng.choice([b"\xff" * 4, b"\x00" * 4, b"\x7f\xff\xff\xff"])


def _change_digit(changed: bytearray, rng: random.Random) -> None:
    """Another digit in a number: the file stays one of its format, and says something else."""
    places = [place for place, byte in enumerate(changed) if byte in b"0123456789"]
    if places:
        changed[rng.choice(places)] = rng.choice(b"0123456789")


_ODD = ("null", "[]", "{}", "-1", "0", "1e999", "NaN", "1" + "0" * 30, '""', '"x"', "true", "[1, 2]", '{"a": 1}', "1.0")


def _replace_value(changed: bytearray, rng: random.Random) -> None:
    """Another value in place of a word or number of a text."""
    text = changed.decode("utf-8", "replace")
    words = [word for word in text.replace(",", " ").replace(":", " ").split() if word.strip("{}[]")]
    if words:
        changed[:] = text.replace(rng.choice(words), rng.choice(_ODD), 1).encode()


CHANGES = (_flip, _cut, _insert, _repeat, _overwrite, _change_digit)


class Outcome(NamedTuple):
    """How a case ended: its exit code, or the fault that it showed."""

    code: int | None
    fault: str = ""
    line: str = ""
    answer: str = ""
    """What it printed."""


def run_case(target: Target, limit: int = LIMIT) -> Outcome:
    """Run a command in this process, with its output caught and an alarm set."""

    def stop(*_: object) -> None:
        raise Hang

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    code: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            target.read()
    except SystemExit as stopped:
        code = stopped.code
    except Hang:
        return Outcome(None, "hang")
    except BaseException as error:  # whatever leaves main would be a traceback on a terminal
        return Outcome(None, "traceback", repr(error)[:200])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return judge(code, err.getvalue(), target.good, target.refused)._replace(answer=out.getvalue())


def judge(code: Any, err: str, good: tuple[int, ...] = (0,), refused: tuple[int, ...] = (1, 2)) -> Outcome:
    """The fault in how a command ended, if there is one."""
    # warnings, of Pillow about a damaged tag say, are lines of their own before the error
    line = "\n".join(each for each in err.strip().splitlines() if not each.startswith("shiftprism: warning"))[:300]
    if "Traceback" in err or "shiftprism: unexpected" in err:
        return Outcome(code, "traceback", line)
    if code not in (*good, *refused) or (code in good and "shiftprism: " in line):
        return Outcome(code, "wrong exit code", line)
    if code in (1, 2) and (not line.startswith("shiftprism: ") or line.count("\n") > 1):
        return Outcome(code, "not one line", line)
    return Outcome(code, "", line)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, with the cache of decoded images there too."""
    before, cache = Path.cwd(), os.environ.get("SHIFTPRISM_DATA")
    os.chdir(folder)
    os.environ["SHIFTPRISM_DATA"] = str(folder / "cache")
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        os.chdir(before)
        tempfile.tempdir = None
        os.environ.pop("SHIFTPRISM_DATA")
        if cache is not None:
            os.environ["SHIFTPRISM_DATA"] = cache


def run_target(target: Target, limit: int = LIMIT) -> Outcome:
    """Run what reads the file; the answer includes what was written, and an error must name the file."""
    outcome = run_case(target, limit)
    for name in target.scratch:
        Path(name).unlink(missing_ok=True)
    made = Path(target.made or os.devnull)
    if target.made and made.exists():
        outcome = outcome._replace(answer=outcome.answer + made.read_bytes().hex())
        made.unlink()
    if target.accepted and outcome.code == 1 and target.accepted in outcome.line:
        return Outcome(0, answer=outcome.line)
    if outcome.code == 1 and not outcome.fault and not any(part in outcome.line for part in Path(target.file).parts):
        return outcome._replace(fault="names no file")
    return outcome


def describe_change(before: bytes, after: bytes) -> str:
    """Where two contents begin to differ, and how."""
    pairs = enumerate(zip(before, after, strict=False))
    first = next((number for number, (old, new) in pairs if old != new), min(len(before), len(after)))
    part = slice(max(0, first - 12), first + 28)
    return f"{len(before)} -> {len(after)} bytes, at {first}: {before[part]!r} -> {after[part]!r}"


class Tally(NamedTuple):
    """What was counted in a run."""

    counts: Counter[str]
    """Cases by kind and how they ended."""
    faults: Counter[str]
    lines: list[str]
    """One for each fault."""
    doubts: list[str]
    """One for each case that a person should judge: success, and another answer than before."""


def run_cases(folder: Path, cases: int, seconds: float, seed: int, only: str = "") -> Tally:
    """Damage one file after another until either limit is reached."""
    rng, ended = random.Random(seed), time.perf_counter() + seconds
    tally = Tally(Counter(), Counter(), [], [])
    with inside(folder):
        targets = [target for target in make_files(folder) if only in target.kind]
        valid = {target.kind: run_target(target, 60) for target in targets}
        assert all(valid[t.kind].code in t.good and not valid[t.kind].fault for t in targets), valid
        for number in range(cases):
            if time.perf_counter() > ended:
                break
            target = targets[number % len(targets)]
            path = folder / target.file
            content = path.read_bytes()
            changed = mutate(content, rng, path.suffix in (".json", ".jsonl", ".toml", ".txt"))
            path.write_bytes(changed)
            outcome = run_target(target)
            path.write_bytes(content)
            name = f"case {number}, {target.kind}"
            taken = outcome.code in target.good
            same = (outcome.code, outcome.answer) == (valid[target.kind].code, valid[target.kind].answer)
            end = f"{'the same' if same else 'another'} answer" if taken else f"exit {outcome.code}"
            tally.counts[f"{target.kind}: {end}"] += 1
            if outcome.fault:
                kept = folder.parent / f"fault-{number}{path.suffix}"
                kept.write_bytes(changed)
                tally.faults[outcome.fault] += 1
                tally.lines.append(f"{outcome.fault}: {name}: {outcome.line} ({kept})")
            elif taken and not same and target.kind not in UNGUARDED:
                tally.doubts.append(f"{name}: {describe_change(content, changed)}")
    return tally


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only kinds of files whose name contains this")
    wanted = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="shiftprism-fuzz-"))
    (place / "files").mkdir()
    began = time.perf_counter()
    tally = run_cases(place / "files", wanted.cases, wanted.seconds, wanted.seed, wanted.only)
    for name, count in sorted(tally.counts.items()):
        print(f"{count:6}  {name}")
    print("To judge: success, and another answer than before", *tally.doubts, sep="\n")
    print("Faults", *tally.lines, sep="\n")
    summary = {"cases": sum(tally.counts.values()), "seconds": round(time.perf_counter() - began)}
    kinds = ("traceback", "hang", "wrong exit code", "not one line", "names no file")
    print(json.dumps(summary | {"to judge": len(tally.doubts)} | {name: tally.faults[name] for name in kinds}))
    shutil.rmtree(place / "files")
    sys.exit(bool(tally.lines))


if __name__ == "__main__":
    _main()
