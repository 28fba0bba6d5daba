"""The store: acknowledged observations, the truth that comes later, and the monitors that they feed."""

import json
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shiftprism._errors import wrong
from shiftprism.store._database import Cursor, Database, explain_damage
from shiftprism.store._observations import COLUMNS, Accuracy, Fold, Observation, Observations, Stream, read_rows
from shiftprism.store._postgresql import PostgreSQL
from shiftprism.store._sqlite import SQLite

_CHUNK = 4096
"""Observations that one transaction folds or deletes."""
_IDS = 500
"""Ids that one query looks for."""
_STREAM = "SELECT number, model, detector, names, calibrated, began, sequence FROM streams"
_ROWS = (
    f"SELECT {', '.join(COLUMNS)} FROM observations WHERE stream = ? AND sequence > ? AND sequence <= ? "
    "ORDER BY sequence LIMIT ?"
)
_INSERT = (
    "INSERT INTO observations (id, stream, request, time, label, confidence, style, concept, p_covariate, p_concept, "
    "p_combined, kind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def open_store(where: str | Path, *, create: bool = True) -> "Store":
    """The store at a path (SQLite) or at a `postgresql://` URL, brought up to date.

    A file is made where there is none, unless `create` is False.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/store.sqlite") as store:
    ...     stream = store.open_stream("digits", "abc", ("zero", "one"), calibrated=True, state=b"")
    ...     store.read(stream).id
    ()
    """
    text = str(where)
    if text.startswith(("postgresql://", "postgres://")):
        return Store(PostgreSQL(text))
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "sqlite":
        got = f"{scheme}://…"
        raise wrong("store", "a path, sqlite:///path or postgresql://…", got, "SQLite and PostgreSQL are known")
    # sqlite:///relative and sqlite:////absolute, as elsewhere
    path = Path(rest.removeprefix("/") if separator else text)
    if not create and not path.exists():
        raise wrong("store", "a store", f"{path}, where there is none", "`shiftprism serve` makes one")
    return Store(SQLite(path))


class Store:
    """Observations in the order in which they were acknowledged. Every method may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settled = 0

    @property
    def where(self) -> str:
        """The file or the server, without a password."""
        return self._database.where

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back connections and locks."""
        self._database.close()

    def check(self) -> None:
        """Raise StoreError where the store cannot be written to."""
        with self._database.write() as cursor:
            cursor.execute("SELECT 1")

    # streams

    def open_stream(self, model: str, detector: str, names: Sequence[str], *, calibrated: bool, state: bytes) -> Stream:
        """The stream of a detector under a name. `state` is that of a new monitor, for a stream that is new, too."""
        values = (model, detector, json.dumps(list(names)), int(calibrated), clock.time(), state, state)
        with self._database.write() as cursor:
            cursor.execute(
                "INSERT INTO streams (model, detector, names, calibrated, began, state, first_state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (model, detector) DO NOTHING",
                values,
            )
            cursor.execute(f"{_STREAM} WHERE model = ? AND detector = ?", (model, detector))
            return _read_stream(cursor.fetchone())

    def streams(self) -> list[Stream]:
        """All streams, the oldest first."""
        with self._database.read() as cursor:
            cursor.execute(f"{_STREAM} ORDER BY number")
            return [_read_stream(row) for row in cursor.fetchall()]

    # observations

    def append(self, observations: Sequence[Observation]) -> None:
        """Store observations: all or none, and on the disk when this returns. Their order is kept."""
        with self._database.append() as cursor:
            cursor.executemany(_INSERT, [tuple(each[:12]) for each in observations])
            images = [(each.id, each.image) for each in observations if each.image is not None]
            if images:
                cursor.executemany("INSERT INTO images (id, bytes) VALUES (?, ?)", images)

    def read(self, stream: Stream, after: int = 0, limit: int = _CHUNK) -> Observations:
        """At most `limit` observations whose sequence numbers come after `after`, in order."""
        with self._database.read() as cursor:
            cursor.execute(_ROWS, (stream.number, after, 1 << 62, limit))
            return read_rows(cursor.fetchall(), stream)

    def read_all(self, stream: Stream, after: int = 0, until: int = 1 << 62) -> Iterator[Observations]:
        """All observations in blocks, in order."""
        while True:
            with self._database.read() as cursor:
                cursor.execute(_ROWS, (stream.number, after, until, _CHUNK))
                block = read_rows(cursor.fetchall(), stream)
            if not len(block):
                return
            yield block
            after = int(block.sequence[-1])

    def image(self, id_: str) -> bytes | None:
        """The image of an observation, where images are kept."""
        with self._database.read() as cursor:
            cursor.execute("SELECT bytes FROM images WHERE id = ?", (id_,))
            row = cursor.fetchone()
            return None if row is None else bytes(row[0])

    def locate(self, ids: Sequence[str]) -> dict[str, Stream]:
        """The streams of observations by their ids; those that are not stored are left out."""
        with self._database.read() as cursor:
            cursor.execute(f"{_STREAM} ORDER BY number")
            streams = {row[0]: _read_stream(row) for row in cursor.fetchall()}
            places: dict[str, Stream] = {}
            for first in range(0, len(ids), _IDS):
                part = ids[first : first + _IDS]
                marks = ", ".join("?" * len(part))
                cursor.execute(f"SELECT id, stream FROM observations WHERE id IN ({marks})", part)
                places |= {str(id_): streams[number] for id_, number in cursor.fetchall()}
            return places

    def label(self, truths: Mapping[str, int]) -> None:
        """Store the truth of observations by their ids; a later one replaces an earlier. Unknown ids are left out."""
        now = clock.time()
        with self._database.write() as cursor:
            # in one order everywhere: two requests must not lock crosswise
            rows = [(truth, now, id_) for id_, truth in sorted(truths.items())]
            cursor.executemany("UPDATE observations SET truth = ?, truth_time = ? WHERE id = ?", rows)

    def accuracy(self, stream: Stream) -> Accuracy:
        """Of the observations whose truth was reported."""
        with self._database.read() as cursor:
            cursor.execute(
                "SELECT count(*), coalesce(sum(CASE WHEN truth = label THEN 1 ELSE 0 END), 0) FROM observations "
                "WHERE stream = ? AND truth IS NOT NULL",
                (stream.number,),
            )
            return Accuracy(*map(int, cursor.fetchone()))

    # monitors

    def lead(self) -> bool:
        """Whether this process is the one that folds, among all that share the store. Ask before each round."""
        return self._database.lead()

    def state(self, stream: Stream) -> tuple[int, bytes]:
        """The monitor's state, and the sequence number of the last observation in it."""
        with self._database.read() as cursor:
            return _read_state(cursor, stream)

    def fold(self, stream: Stream, fold: Fold) -> int:
        """Fold the next observations into the monitor's state, at most 4,096. How many there were.

        State and sequence number change in one transaction: whenever the process dies, the state is that of a replay.
        The monitor computes outside of it, so that no append waits; where the state has changed meanwhile (a reset,
        another leader), nothing is stored, and the next round starts from what is there.
        """
        with self._database.read() as cursor:
            after, state = _read_state(cursor, stream)
            cursor.execute("SELECT coalesce(max(sequence), 0) FROM observations WHERE stream = ?", (stream.number,))
            newest = int(cursor.fetchone()[0])
        if newest <= after:
            return 0
        if newest > self._settled:
            self._settled = self._database.settle()
        with self._database.read() as cursor:
            cursor.execute(_ROWS, (stream.number, after, self._settled, _CHUNK))
            block = read_rows(cursor.fetchall(), stream)
        if not len(block):
            return 0
        changed = fold.update(state, block)
        with self._database.write() as cursor:
            if _read_state(cursor, stream, self._database.lock_row) != (after, state):
                return 0
            values = (int(block.sequence[-1]), changed, stream.number)
            cursor.execute("UPDATE streams SET sequence = ?, state = ? WHERE number = ?", values)
        return len(block)

    def reset(self, stream: Stream, fold: Fold, reason: str) -> int:
        """Reset the monitor after the observations that are folded; recorded with its reason. The sequence number."""
        with self._database.write() as cursor:
            sequence, state = _read_state(cursor, stream, self._database.lock_row)
            cursor.execute(
                "INSERT INTO resets (stream, sequence, time, reason) VALUES (?, ?, ?, ?)",
                (stream.number, sequence, clock.time(), reason),
            )
            values = (fold.reset(state, reason), stream.number)
            cursor.execute("UPDATE streams SET state = ? WHERE number = ?", values)
        return sequence

    def replay(self, stream: Stream, fold: Fold) -> tuple[int, bytes, bytes]:
        """The monitor's state made anew from the stored observations.

        Returns the last sequence number, the state that a replay gives, and the one that is stored: they are equal.
        """
        with self._database.read() as cursor:
            point = _read_point(cursor, stream)
            until, stored = _read_state(cursor, stream)
            count = 1
            while count:
                point, count = _advance(cursor, stream, fold, point, until)
        return until, point.state, stored

    def prune(self, before: float, fold: Fold) -> int:
        """Delete observations from before a time, with their images. How many.

        Only folded ones go, and the monitor before the first that stays is stored: a replay starts there.
        """
        return sum(self._prune(stream, before, fold) for stream in self.streams())

    def _prune(self, stream: Stream, before: float, fold: Fold) -> int:
        with self._database.read() as cursor:
            sql = "SELECT min(sequence) FROM observations WHERE stream = ? AND time >= ?"
            cursor.execute(sql, (stream.number, before))
            first_young = cursor.fetchone()[0]
            last = _read_state(cursor, stream)[0]
        last = last if first_young is None else min(last, int(first_young) - 1)
        total, count = 0, 1
        while count:
            with self._database.write() as cursor:
                point = _read_point(cursor, stream, self._database.lock_row)
                point, count = _advance(cursor, stream, fold, point, last)
                if count:
                    sql = "DELETE FROM observations WHERE stream = ? AND sequence <= ?"
                    cursor.execute(sql, (stream.number, point.sequence))
                    sql = "UPDATE streams SET first_sequence = ?, first_reset = ?, first_state = ? WHERE number = ?"
                    cursor.execute(sql, (*point, stream.number))
            total += count
        return total


class _Point(NamedTuple):
    """A monitor's state with all that is in it."""

    sequence: int
    reset: int
    """The number of the last reset."""
    state: bytes


@explain_damage()
def _read_stream(row: Sequence[Any]) -> Stream:
    number, model, detector, names, calibrated, began, sequence = row
    return Stream(number, model, detector, tuple(json.loads(names)), bool(calibrated), began, sequence)


@explain_damage()
def _read_state(cursor: Cursor, stream: Stream, lock: str = "") -> tuple[int, bytes]:
    cursor.execute(f"SELECT sequence, state FROM streams WHERE number = ?{lock}", (stream.number,))
    sequence, state = cursor.fetchone()
    return int(sequence), bytes(state)


@explain_damage()
def _read_point(cursor: Cursor, stream: Stream, lock: str = "") -> _Point:
    sql = f"SELECT first_sequence, first_reset, first_state FROM streams WHERE number = ?{lock}"
    cursor.execute(sql, (stream.number,))
    sequence, reset, state = cursor.fetchone()
    return _Point(int(sequence), int(reset), bytes(state))


def _advance(cursor: Cursor, stream: Stream, fold: Fold, point: _Point, until: int) -> tuple[_Point, int]:
    """The next observations and the resets between them, folded into a state; how many observations there were."""
    cursor.execute(_ROWS, (stream.number, point.sequence, until, _CHUNK))
    block = read_rows(cursor.fetchall(), stream)
    last = int(block.sequence[-1]) if len(block) else point.sequence
    sql = (
        "SELECT number, sequence, reason FROM resets WHERE stream = ? AND number > ? AND sequence <= ? ORDER BY number"
    )
    cursor.execute(sql, (stream.number, point.reset, last))
    state, reset, begin = point.state, point.reset, 0
    for number, sequence, reason in cursor.fetchall():
        end = int(np.searchsorted(block.sequence, sequence, side="right"))
        state = fold.update(state, block.cut(begin, end)) if end > begin else state
        state, reset, begin = fold.reset(state, reason), int(number), end
    state = fold.update(state, block.cut(begin, len(block))) if len(block) > begin else state
    return _Point(last, reset, state), len(block)
