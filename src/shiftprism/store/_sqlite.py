"""SQLite in one file, embedded: one machine, any number of threads."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from shiftprism.store._database import Cursor, Database, StoreError, find_missing

_WAIT = 10.0
"""Seconds to wait for another process that writes."""


class SQLite(Database):
    """One connection writes, one reads; each is used by one thread at a time."""

    lock_row = ""  # BEGIN IMMEDIATE has locked the whole database

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._path = path
        self._writing, self._reading, self._leading = threading.Lock(), threading.Lock(), threading.Lock()
        self._leader: sqlite3.Connection | None = None
        self._closed = False
        with self._explain_errors():
            if path.is_dir():
                raise StoreError(f"{path}: this is a folder, not a file; name a file for the store")
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # observations are nobody else's business; SQLite gives -wal and -shm the same mode
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._writer = _connect(path)
            try:
                self._migrate()
                self._reader = _connect(path)
            except BaseException:
                self._writer.close()
                raise

    @contextmanager
    def write(self) -> Iterator[Cursor]:
        with self._writing, self._explain_errors(), _transaction(self._writer, "BEGIN IMMEDIATE") as cursor:
            yield cursor

    append = write  # a sequence number is given under the lock, so that numbers are committed in order

    @contextmanager
    def read(self) -> Iterator[Cursor]:
        with self._reading, self._explain_errors(), _transaction(self._reader, "BEGIN") as cursor:
            yield cursor

    def settle(self) -> int:
        with self.read() as cursor:
            cursor.execute("SELECT coalesce(max(sequence), 0) FROM observations")
            return int(cursor.fetchone()[0])

    def lead(self) -> bool:
        with self._leading, self._explain_errors():
            if self._closed:  # or it would take the lock again, and keep others from leading
                return False
            if self._leader is None:
                # A file that is only ever locked: SQLite's locks work on every system and end with their process.
                leader = _connect(self._path.with_name(f"{self._path.name}-leader"), wait=0.0)
                try:
                    leader.execute("BEGIN EXCLUSIVE")
                except sqlite3.OperationalError:
                    leader.close()
                    return False
                self._leader = leader
            return True

    def close(self) -> None:
        with self._writing, self._reading, self._leading:
            self._closed = True
            for connection in (self._reader, self._writer, self._leader):
                if connection is not None:
                    connection.close()
            self._leader = None

    def _migrate(self) -> None:
        with _transaction(self._writer, "BEGIN IMMEDIATE") as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT, time REAL)")
            cursor.execute("SELECT number FROM migrations")
            for migration in find_missing([row[0] for row in cursor.fetchall()], "sqlite", self.where):
                for statement in _statements(migration.sql):
                    cursor.execute(statement)
                values = (migration.number, migration.name, time.time())
                cursor.execute("INSERT INTO migrations VALUES (?, ?, ?)", values)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.where}: {error}") from error


def _connect(path: Path, wait: float = _WAIT) -> sqlite3.Connection:
    """A connection without transactions of its own."""
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    if wait:
        connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
        # FULL: a commit is on the disk before it returns. NORMAL survives a killed process, not a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: past the disk's own cache
        connection.execute("PRAGMA foreign_keys = ON")
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[Cursor]:
    connection.execute(begin)
    try:
        yield cast("Cursor", connection.cursor())
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """The statements of a script. `executescript` would commit before the first one."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
