"""PostgreSQL, for several replicas behind a balancer."""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from shiftprism._extras import need
from shiftprism.store._database import Cursor, Database, StoreError, find_missing

# Advisory locks of this database; the first number is ours ("SP"), the second says what for.
_APPENDING, _LEADING, _MIGRATING = (0x5350, 1), (0x5350, 2), (0x5350, 3)
_WAIT = 5.0
"""Seconds to wait for a connection."""
_SETTLE = 0.5
"""Seconds to wait for appends under way; then the next round sees to it."""
_LAST_NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM observations_sequence_seq"
_HOLDERS = (
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s "
    "AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_SETTINGS = (
    # A replica that hangs, or whose machine is gone, must not hold its locks for ever.
    "SET idle_in_transaction_session_timeout = '30s'",
    "SET lock_timeout = '10s'",
    "SET statement_timeout = '60s'",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
)


class PostgreSQL(Database):
    """A pool of connections, and one more that holds the leader's lock."""

    lock_row = " FOR UPDATE"

    def __init__(self, url: str, connections: int = 4) -> None:
        self._psycopg = need("psycopg", "postgres")
        pools = need("psycopg_pool", "postgres")
        self.where = re.sub(r"//[^@/]*@", "//", url.split("?", 1)[0])
        self._url = url
        self._leading = threading.Lock()
        self._leader: Any = None
        self._leads = self._closed = False
        self._settled = 0
        with self._explain_errors():  # one attempt of our own: a pool would try for ever and hide the reason
            self._connect().close()
        self._pool = pools.ConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            timeout=_WAIT,
            reconnect_timeout=0,
            kwargs={"autocommit": True, "connect_timeout": 5},
            configure=_configure,
            check=pools.ConnectionPool.check_connection,  # after a restart of the server: a new connection, no error
            open=True,
        )
        try:
            self._migrate()
        except BaseException:
            self._pool.close()
            raise

    @contextmanager
    def write(self) -> Iterator[Cursor]:
        with self._explain_errors(), self._pool.connection() as connection, connection.transaction():
            yield _QuestionMarks(connection.cursor())

    @contextmanager
    def append(self) -> Iterator[Cursor]:
        """The shared lock comes before the sequence number: who holds it may have a number that is not committed."""
        with self.write() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(?, ?)", _APPENDING)
            yield cursor

    @contextmanager
    def read(self) -> Iterator[Cursor]:
        with self._explain_errors(), self._pool.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _QuestionMarks(connection.cursor())

    def settle(self) -> int:
        """Numbers are given under a shared lock. When all who hold it now have ended, no number given is missing.

        No append waits for this: a replica that hangs in the middle of one delays the monitor, and nobody's answers.
        """
        end = time.monotonic() + _SETTLE
        with self._explain_errors(), self._pool.connection() as connection:  # each statement sees its own moment
            newest = int(connection.execute(_LAST_NUMBER).fetchone()[0])
            under_way = {row[0] for row in connection.execute(_HOLDERS, _APPENDING)}
            while under_way:
                if time.monotonic() > end:
                    return self._settled
                time.sleep(0.005)
                under_way &= {row[0] for row in connection.execute(_HOLDERS, _APPENDING)}
        self._settled = newest
        return newest

    def lead(self) -> bool:
        with self._leading:
            if self._closed:  # or it would take the lock again, and keep others from leading
                return False
            try:
                if self._leader is None:
                    self._leader, self._leads = self._connect(), False
                if self._leads:
                    self._leader.execute("SELECT 1")  # a lost connection has lost the lock
                else:
                    row = self._leader.execute("SELECT pg_try_advisory_lock(%s, %s)", _LEADING).fetchone()
                    self._leads = bool(row[0])
                return self._leads
            except self._psycopg.Error:
                self._drop_leader()
                return False

    def close(self) -> None:
        with self._leading:
            self._closed = True
            self._drop_leader()
        self._pool.close()

    def _drop_leader(self) -> None:
        if self._leader is not None:
            with suppress(self._psycopg.Error):
                self._leader.close()
            self._leader = None

    def _connect(self) -> Any:
        connection = self._psycopg.connect(self._url, autocommit=True, connect_timeout=5)
        _configure(connection)
        return connection

    def _migrate(self) -> None:
        with self.write() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(?, ?)", _MIGRATING)
            cursor.execute("SET LOCAL client_min_messages = warning")  # "already exists, skipping" is no news
            sql = "CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT, time DOUBLE PRECISION)"
            cursor.execute(sql)
            cursor.execute("SELECT number FROM migrations")
            for migration in find_missing([row[0] for row in cursor.fetchall()], "postgresql", self.where):
                cursor.execute(migration.sql)
                values = (migration.number, migration.name, time.time())
                cursor.execute("INSERT INTO migrations VALUES (?, ?, ?)", values)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        pools = need("psycopg_pool", "postgres")
        try:
            yield
        except (self._psycopg.Error, pools.PoolTimeout, pools.PoolClosed) as error:
            raise StoreError(f"{self.where}: {' '.join(str(error).split())}") from error


def _configure(connection: Any) -> None:
    for setting in _SETTINGS:
        connection.execute(setting)
    if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":  # an acknowledged row must survive a crash
        connection.execute("SET synchronous_commit = on")


class _QuestionMarks:
    """A psycopg cursor that takes `?` for values, as SQLite does. No statement of ours has one for another purpose."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._cursor.execute(sql.replace("?", "%s"), values or None)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Any:
        return self._cursor.executemany(sql.replace("?", "%s"), rows)

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return cast("list[Any]", self._cursor.fetchall())
