"""A PostgreSQL server of our own in a temporary directory, from Debian's packages."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
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

    def __init__(self, folder: Path) -> None:
        programs = find_programs()
        if programs is None and "SHIFTPRISM_NO_SKIP" not in os.environ:
            pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
        assert programs, "PostgreSQL is not installed, and SHIFTPRISM_NO_SKIP forbids to skip"
        self._programs, self._data, self.port = programs, folder / "data", free_port()
        self._log = folder / "log"
        # initdb refuses root
        self._user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
        if self._user:
            shutil.chown(folder, "nobody")
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "shiftprism", "-E", "UTF8", "--locale=C")
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=60"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._log), "-w", "-t", "120", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def kill(self) -> None:
        """SIGKILL to the server process, as a machine without memory would do; it must be started again."""
        process = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(process, signal.SIGKILL)
        while Path(f"/proc/{process}").exists() and "Z" not in _state(process):
            pass
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


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@contextmanager
def run_server() -> Iterator[Server]:
    """A server while the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="shiftprism-postgres-"))  # pytest's own folders are closed to `nobody`
    try:
        server = Server(folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
