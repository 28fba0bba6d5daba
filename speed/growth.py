"""How time and memory of every score grow with N, K and D, on synthetic Outputs that stay in their file.

    python speed/growth.py --to growth.jsonl                      all cells, hours; the same command resumes
    python speed/growth.py --to growth.jsonl --most-n 10000 --scores msp knn
    python speed/growth.py --to growth.jsonl --table              the tables of what is there, nothing is measured

A cell is a score at one N, K and D: it is fitted to N rows and scores the same N rows, in a process of its own, from
Outputs that are mapped and not loaded. Ranks have a reference of 10,000 rows, style 10,000 shifted copies, whatever N.
Scoring ends after --scoring-seconds; its time is then scaled to N rows, and the table writes ≈ before it. Rows are
scored one block after another with nothing kept but the values, so time and memory of the rest are those of the first.
Exponents are fitted without these cells. Memory is the largest anonymous resident set (RssAnon, looked at every 10 ms)
beyond that of the process before the fit, so while scoring it has the fitted score in it: pages of the mapped file come
on top, and the kernel takes those back when it needs them. A cell that takes longer than --most-seconds is stopped;
larger N of the same score are then left out, and the table says so.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from shiftprism.heads import Linear
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, score_rows

SIZES, CLASSES, WIDTHS = (10_000, 100_000, 1_000_000), (10, 100, 1000), (512, 2048)
STYLE = 500
"""Statistics of style, as colour images have about."""
PART = 20_000
"""Rows that are made at a time."""
REFERENCE = 10_000
NAMES = [name for name in SCORES if name != "kernel"]
"""`kernel` is max_logit of a DUQ head."""


class Cell(NamedTuple):
    score: str
    n: int
    k: int
    d: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="a JSON line for each cell; none is repeated")
    parser.add_argument("--most-n", type=int, default=SIZES[-1])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="N")
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES, help="K")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="D")
    parser.add_argument("--scores", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--most-seconds", type=float, default=1800, help="for one cell")
    parser.add_argument("--scoring-seconds", type=float, default=60, help="rows after that are not scored")
    parser.add_argument("--files", type=Path, help="where the Outputs are made, 20 GB at most; by default beside --to")
    parser.add_argument("--table", action="store_true", help="print the tables and measure nothing")
    words = parser.parse_args()
    if not words.table:
        sizes = sorted(n for n in words.sizes if n <= words.most_n)
        for k in words.classes:
            for d in words.widths:
                measure_missing(words, [Cell(name, n, k, d) for name in words.scores for n in sizes])
    print(make_tables(list(read_rows(words.to))))


def measure_missing(words: argparse.Namespace, cells: list[Cell]) -> None:
    """The cells of one K and D that are not in the file yet; they share one file of Outputs."""
    done = {Cell(*(row[name] for name in Cell._fields)) for row in read_rows(words.to)}
    missing = [cell for cell in cells if cell not in done]
    if not missing:
        return
    k, d, most = missing[0].k, missing[0].d, max(cell.n for cell in missing)
    file = (words.files or words.to.parent) / f"outputs-{most}-{k}-{d}.safetensors"
    make_outputs(file, most, k, d)
    slow = {row["score"] for row in read_rows(words.to) if "stopped" in row and (row["k"], row["d"]) == (k, d)}
    try:
        for cell in missing:
            row = {"stopped": "a smaller N took too long"} if cell.score in slow else run_alone(words, file, cell)
            if "stopped" in row:
                slow.add(cell.score)
            with words.to.open("a") as out:
                out.write(json.dumps(cell._asdict() | row) + "\n")
            print(cell._asdict() | row, file=sys.stderr, flush=True)
    finally:
        file.unlink()


def run_alone(words: argparse.Namespace, file: Path, cell: Cell) -> dict[str, Any]:
    """What a process of its own measures, or why it was stopped."""
    # each process is forked from one that has only imported: a fresh one would import torch for three seconds
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shiftprism.scores", "shiftprism.heads"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_measured, args=(sender, file, cell, words.scoring_seconds))
    process.start()
    sender.close()
    try:
        if not receiver.poll(words.most_seconds):
            return {"stopped": f"more than {words.most_seconds:g} s"}
        row: dict[str, Any] = receiver.recv()
        return row
    except EOFError:
        return {"stopped": "killed, out of memory?"}
    finally:
        process.kill()
        process.join()


def send_measured(sender: Any, file: Path, cell: Cell, seconds: float) -> None:
    try:
        sender.send(measure(file, cell, seconds))
    except Exception as error:
        sender.send({"stopped": f"{type(error).__name__} {error}".splitlines()[0]})


def make_outputs(file: Path, n: int, k: int, d: int) -> None:
    """Clusters of ReLU features through a linear head, with style; made in parts, of which one is in memory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    head, means = make_head(k, d), torch.randn(k, d, generator=torch.Generator().manual_seed(1))
    parts = []
    for start in range(0, n, PART):
        generator = torch.Generator().manual_seed(start + 2)
        labels = torch.arange(start, min(start + PART, n)) % k
        features = torch.randn(len(labels), d, generator=generator).add_(means[labels]).relu_()
        style = torch.randn(len(labels), STYLE, generator=generator)
        with torch.no_grad():
            outputs = head.outputs(features)._replace(style=style)
        parts.append(file.with_name(f"{file.stem}.{start}.part"))
        outputs.save(parts[-1], labels)
    Outputs.join_files(parts, file)
    for part in parts:
        part.unlink()


def make_head(k: int, d: int) -> Linear:
    torch.manual_seed(0)
    return Linear(d, k)


def measure(file: Path, cell: Cell, seconds: float) -> dict[str, Any]:
    """Seconds and megabytes of a fit to the first N rows, and of scoring them."""
    whole, labels = Outputs.load(file, mapped=True)
    assert labels is not None
    n = cell.n
    outputs, labels = whole.rows(slice(0, n)), labels[:n]
    some = Outputs(*(field.clone() for field in whole.rows(slice(max(0, n - REFERENCE), n))))
    shifted, head = some._replace(style=some.style + 0.5), make_head(cell.k, whole.D)
    with torch.no_grad():
        SCORES["msp"](outputs.rows(slice(0, 8)))  # what torch sets up once
        before = anonymous()
        with watch() as fitting:
            fitted = SCORES[cell.score].fit(outputs, labels, head=head, reference=some, shifted=shifted)
        with watch() as scoring:
            scored = score_for(seconds, fitted, outputs)
    return {
        "fit_seconds": fitting["seconds"],
        "fit_mb": fitting["most"] - before,
        "score_seconds": scoring["seconds"] * n / scored,
        "scored": scored,
        "score_mb": scoring["most"] - before,
        "whole_mb": max(fitting["most"], scoring["most"]),
        "file_mb": os.path.getsize(file) / 2**20,
        "threads": torch.get_num_threads(),
    }


def score_for(seconds: float, score: Any, outputs: Outputs) -> int:
    """Score rows in growing parts, all of them or as many as fit into the time; returns how many."""
    values, step, began = [], 512, time.perf_counter()
    done = 0
    while done < outputs.N:
        values.append(score_rows(score, outputs.rows(slice(done, done + step))))
        done += len(values[-1])
        spent = time.perf_counter() - began
        step = min(2 * step, 65_536, int((seconds - spent) * done / spent))
        if step < 1:
            break
    assert bool(torch.isfinite(torch.cat(values)).all())
    return done


@contextmanager
def watch() -> Iterator[dict[str, float]]:
    """Seconds of the block, and the largest anonymous memory in it, in megabytes."""
    found: dict[str, float] = {}
    stopped, peak = threading.Event(), [anonymous()]

    def look() -> None:
        while not stopped.wait(0.01):
            peak[0] = max(peak[0], anonymous())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    began = time.perf_counter()
    yield found
    found["seconds"] = time.perf_counter() - began
    stopped.set()
    thread.join()
    found["most"] = max(peak[0], anonymous())


def anonymous() -> float:
    """Megabytes of this process that are no pages of a file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("Expected /proc/self/status with RssAnon, which Linux has; run this on Linux")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The finished cells; a last line that was cut off does not count."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def make_tables(rows: list[dict[str, Any]]) -> str:
    """A Markdown table of each K and D, and one of the exponents."""
    cells = {Cell(*(row[name] for name in Cell._fields)): row for row in rows}
    sizes = sorted({cell.n for cell in cells})
    names = [name for name in NAMES if any(cell.score == name for cell in cells)]
    texts = []
    for k, d in sorted({(cell.k, cell.d) for cell in cells}):
        titles = [f"{what} {n:,}" for what in ("fit", "score") for n in sizes]
        texts += [f"\nK = {k:,}, D = {d:,}: seconds (MB)\n", f"| score | {' | '.join(titles)} |"]
        texts.append("|---" + "|--:" * len(titles) + "|")
        for name in names:
            columns = [describe(cells.get(Cell(name, n, k, d)), what) for what in ("fit", "score") for n in sizes]
            texts.append(f"| `{name}` | {' | '.join(columns)} |")
        own = [row for cell, row in cells.items() if (cell.k, cell.d) == (k, d) and "stopped" not in row]
        texts.append(f"\nThe largest process had {max((row['whole_mb'] for row in own), default=0):,.0f} MB.")
    texts += ["\nFitted exponents, time ~ N^a K^b D^c, memory ~ N^a of cells above 50 MB\n"]
    what = ("fit_seconds", "score_seconds")
    titles = [f"{part.split('_')[0]} {axis}" for part in what for axis in "NKD"]
    texts.append(f"| score | {' | '.join(titles)} | memory N |")
    texts.append("|---" + "|--:" * 7 + "|")
    for name in names:
        own = [row for cell, row in cells.items() if cell.score == name and "stopped" not in row]
        whole = [row for row in own if row["scored"] >= row["n"]]
        powers = [*fit_exponents(own, "fit_seconds"), *fit_exponents(whole, "score_seconds")]
        texts.append(f"| `{name}` | {' | '.join(map(write_power, powers))} | {write_power(memory_exponent(own))} |")
    return "\n".join(texts)


def describe(row: dict[str, Any] | None, what: str) -> str:
    if row is None:
        return ""
    if "stopped" in row:
        return "stopped"
    about = "≈" if what == "score" and row["scored"] < row["n"] else ""
    return f"{about}{row[f'{what}_seconds']:.3g} ({row[f'{what}_mb']:.0f})"


def write_power(power: float) -> str:
    return "" if math.isnan(power) else f"{power:.2f}"


def fit_exponents(rows: list[dict[str, Any]], what: str, axes: str = "nkd") -> list[float]:
    """Least squares of ln(time) on ln N, ln K and ln D; cells below 10 ms are left out; NaN for what has one value."""
    rows = [row for row in rows if row[what] > 1e-2]
    varied = [axis for axis in axes if len({row[axis] for row in rows}) > 1]
    if len(rows) <= len(varied):
        return [math.nan] * len(axes)
    table = torch.tensor([[1.0, *(math.log(row[axis]) for axis in varied)] for row in rows], dtype=torch.float64)
    values = torch.tensor([[math.log(row[what])] for row in rows], dtype=torch.float64)
    found = torch.linalg.lstsq(table, values, driver="gelsd").solution[1:, 0].tolist()
    powers = dict(zip(varied, found, strict=True))
    return [powers.get(axis, math.nan) for axis in axes]


def memory_exponent(rows: list[dict[str, Any]]) -> float:
    """How the larger of the two memories grows with N at equal K and D, fitted with those as factors too."""
    largest = [row | {"most": max(row["fit_mb"], row["score_mb"])} for row in rows]
    return fit_exponents([row for row in largest if row["most"] > 50], "most")[0]


if __name__ == "__main__":
    main()
