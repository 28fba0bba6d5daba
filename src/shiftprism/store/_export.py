"""Stored observations as a table for others: Parquet, CSV or JSON lines."""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shiftprism._errors import choice
from shiftprism._extras import need
from shiftprism._files import replacing
from shiftprism.store._observations import NO_CLASS, Observations, Stream
from shiftprism.store._store import Store
from shiftprism.verdicts import ARRAYS

Table = dict[str, list[Any]]
_TYPES = {"sequence": "int64", "time": "double", "label": "int64", "truth": "int64"}
_WORDS = ("id", "request", "model", "detector", "name", "truth_name", "kind")


def export(store: Store, path: Path, progress: Callable[[int], None] = lambda count: None) -> int:
    """Write all observations of all streams to one file, whole or not at all; its suffix names the format.

    .parquet needs the extra `parquet`; .csv and .jsonl need nothing. Returns how many there are. Memory does not grow
    with their number.
    """
    writers = {".parquet": _write_parquet, ".csv": _write_csv, ".jsonl": _write_lines}
    write_format = writers[choice("path", path.suffix.lower(), writers)]
    count = 0
    with replacing(path) as beside, write_format(beside) as write:
        for stream in store.streams():
            for block in store.read_all(stream):
                write(_columns(stream, block))
                count += len(block)
                progress(count)
    return count


def _columns(stream: Stream, block: Observations) -> Table:
    verdicts = block.verdicts
    truths = [None if truth != truth else int(truth) for truth in block.truth.tolist()]
    names = [None if truth is None or truth == NO_CLASS else verdicts.name_of(truth) for truth in truths]
    columns: Table = {"sequence": block.sequence.tolist(), "time": block.time.tolist()}
    columns |= {"model": [stream.model] * len(block), "detector": [stream.detector] * len(block)}
    columns |= {"id": list(block.id), "request": list(block.request)}
    columns |= {"name": [verdicts.name_of(label) for label in verdicts.label.tolist()]}
    columns |= {name: getattr(verdicts, name).tolist() for name in ARRAYS}
    return columns | {"truth": truths, "truth_name": names}


_NAMES = ("sequence", "time", "model", "detector", "id", "request", "name", *ARRAYS, "truth", "truth_name")


@contextmanager
def _write_parquet(path: Path) -> Iterator[Callable[[Table], None]]:
    pyarrow, parquet = need("pyarrow", "parquet"), need("pyarrow.parquet", "parquet")
    types = dict.fromkeys(_WORDS, "string") | _TYPES
    schema = pyarrow.schema([(name, types.get(name, "double")) for name in _NAMES])
    with parquet.ParquetWriter(path, schema) as writer:
        yield lambda table: writer.write_table(pyarrow.table(table, schema=schema))


@contextmanager
def _write_csv(path: Path) -> Iterator[Callable[[Table], None]]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_NAMES)
        yield lambda table: writer.writerows(zip(*(table[name] for name in _NAMES), strict=True))


@contextmanager
def _write_lines(path: Path) -> Iterator[Callable[[Table], None]]:
    with path.open("w", encoding="utf-8") as file:

        def write(table: Table) -> None:
            for row in zip(*(table[name] for name in _NAMES), strict=True):
                values = dict(zip(_NAMES, row, strict=True))
                file.write(json.dumps(values, ensure_ascii=False) + "\n")

        yield write
