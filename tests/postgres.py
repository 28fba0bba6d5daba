"""A PostgreSQL server of our own in a temporary directory, from Debian's packages."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def find_programs() -> Path | None:
    """The folder of initdb and postgres: Debian keeps them out of the path."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    return Path(found).parent if found else folders[-1] if folders else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path, sync: bool) -> None:
        programs = find_programs()
        if programs is None and "SHIFTPRISM_NO_SKIP" not in os.environ:
            pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
        assert programs, "PostgreSQL is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
        self._programs, self._data, self.port = programs, folder / "data", free_port()
        self._log, self._sync = folder / "log", sync
        # initdb refuses root
        self._user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
        if self._user:
            shutil.chown(folder, "nobody")
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "shiftprism", "-E", "UTF8", "--locale=C", "-N")
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=60"
        if not self._sync:  # what was written survives killed processes all the same, and waits for no disk
            options += " -c fsync=off"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._log), "-w", "-t", "120", "-o", options, "start")

    def kill(self) -> None:
        """SIGKILL to the server and all its processes at once; it must be started again."""
        first = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(first, signal.SIGSTOP)  # so that it starts no further ones
        processes = [first, *_children(first)]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        while any(_state(process) != "Z" for process in processes):
            time.sleep(0.01)
        (self._data / "postmaster.pid").unlink()

    def url(self, database: str) -> str:
        return f"postgresql://shiftprism@127.0.0.1:{self.port}/{database}"

    def make_database(self, name: str) -> str:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def _run(self, program: str, *words: str) -> None:
        command = [*self._user, str(self._programs / program), *words]
        # the server inherits what pg_ctl has open: a pipe here would never end
        with self._log.with_name("output").open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=output, check=False, cwd="/")
        text = self._log.with_name("output").read_text(errors="replace")[-2000:]
        assert done.returncode == 0, f"{program}: {text}"


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def _state(process: int) -> str:
    """The letter of a process's state; Z also for one that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@contextmanager
def run_server(sync: bool = False) -> Iterator[Server]:
    """A server while the block lasts; with `sync` it waits for the disk, as any server should that is not a test's."""
    folder = Path(tempfile.mkdtemp(prefix="shiftprism-postgres-"))  # pytest's own folders are closed to `nobody`
    try:
        server = Server(folder, sync)
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
