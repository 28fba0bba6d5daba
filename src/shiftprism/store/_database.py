"""What the two databases have in common: transactions, locks, and migrations by numbered files of SQL."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from shiftprism._errors import wrong


class StoreError(OSError):
    """The database cannot be reached, is locked, damaged or full. Nothing was acknowledged."""


@contextmanager
def explain_damage() -> Iterator[None]:
    """Turn what goes wrong while values of a row are read into an error that says so; also a decorator.

    SQLite does not look whether a value that it reads is what the table's column allows.
    """
    try:
        yield
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a row of it is damaged ({' '.join(str(error).split())}); restore a backup") from error


class Cursor(Protocol):
    """What SQLite's and psycopg's cursors share."""

    def execute(self, sql: str, values: Sequence[Any] = ...) -> Any: ...
    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Database(ABC):
    """A database with our tables. SQL is written once, with `?` for values."""

    where: str
    """The database as errors name it, without a password."""
    lock_row: str
    """What ends a SELECT whose row no other transaction may change before this one ends."""

    @abstractmethod
    def write(self) -> AbstractContextManager[Cursor]:
        """A transaction: committed to the disk when the block ends well, undone when it does not."""

    @abstractmethod
    def append(self) -> AbstractContextManager[Cursor]:
        """A transaction that adds observations. `settle` waits for it."""

    @abstractmethod
    def read(self) -> AbstractContextManager[Cursor]:
        """A transaction that sees one moment of the database and changes nothing."""

    @abstractmethod
    def settle(self) -> int:
        """A sequence number up to which no observation can appear any more."""

    @abstractmethod
    def lead(self) -> bool:
        """Whether this process is the one that folds; it tries to become so. The role ends with the process."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections and locks."""


class Migration(NamedTuple):
    """One numbered file of SQL."""

    number: int
    name: str
    sql: str


def list_migrations(dialect: str) -> Iterator[Migration]:
    """The migrations that come with the package, in order: `NNNN_name.sql` in the folder of the dialect."""
    folder = files("shiftprism.store").joinpath(dialect)
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            yield Migration(int(number), name, file.read_text(encoding="utf-8"))


def find_missing(applied: Sequence[int], dialect: str, where: str) -> list[Migration]:
    """The migrations that a database has not seen. One from a newer version is an error."""
    known = list(list_migrations(dialect))
    if unknown := sorted(set(applied) - {each.number for each in known}):
        got = f"{where}, which a newer version has changed (migration {unknown[-1]:04d})"
        raise wrong("store", "one that this version knows", got, "update shiftprism")
    return [each for each in known if each.number not in applied]
