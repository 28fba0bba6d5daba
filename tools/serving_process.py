"""A service in a process of its own, clients that keep their connections, and what both used of the processor."""

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Process:
    """`shiftprism serve` on a free port; it can be stopped, or killed."""

    def __init__(
        self,
        model: "str | Path",
        store: str,
        *flags: str,
        environment: "dict[str, str] | None" = None,
        program: Sequence[str] = (sys.executable, "-m", "shiftprism"),
    ) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it is open for as long as the process runs)
        command = [*program, "serve", str(model), "--port", "0", "--store", store, *flags]
        self.program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=os.environ | (environment or {})
        )
        assert self.program.stdout is not None
        line = self.program.stdout.readline()
        match = re.search(r"http://[^ ]*:(\d+),", line)
        if match is None:
            self.program.wait()
            raise RuntimeError(f"the service did not start: {line} {self.read_log()[-2000:]}")
        self.port = int(match[1])
        self.wait_until_ready()

    def wait_until_ready(self, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            client = Client(self.port)
            try:
                if client.ask("GET", "/readyz")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                client.close()
            if self.program.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the service is not ready: {self.read_log()[-2000:]}")

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """It ends in any case; after an error it is killed."""
        if self.program.poll() is None:
            self.stop() if kind is None else self.kill()

    def read_log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def kill(self) -> None:
        """SIGKILL: nothing can be put in order any more."""
        self.program.kill()
        self._close()

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.program.send_signal(signal.SIGTERM)
        return self._close()

    def _close(self) -> int:
        status = self.program.wait(120)
        assert self.program.stdout is not None
        self.program.stdout.close()
        self._log.close()
        return status

    def cpu_seconds(self) -> float:
        """Of the service and its decoders."""
        return sum(_cpu_seconds(process) for process in (self.program.pid, *children(self.program.pid)))

    def memory(self) -> float:
        """Megabytes of the service and its decoders."""
        total = 0
        for process in (self.program.pid, *children(self.program.pid)):
            # what is shared by several processes counts a part in each, so that the sum is right
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total / 1024


def children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client:
    """One connection that stays open."""

    def __init__(self, port: int, token: "str | None" = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: "bytes | None" = None, **headers: str) -> tuple[int, bytes]:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            self._connection.request(method, path, body, self._headers | own)
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self._connection.close()
            raise

    def predict(self, body: bytes, content_type: str = "application/json") -> tuple[int, Any]:
        status, content = self.ask("POST", "/v1/predict", body, Content_Type=content_type)
        return status, json.loads(content)

    def close(self) -> None:
        self._connection.close()


def make_body(images: Sequence[bytes]) -> bytes:
    """Images as JSON."""
    return json.dumps({"images": [base64.b64encode(image).decode() for image in images]}).encode()


def make_form(images: Sequence[bytes]) -> tuple[bytes, str]:
    """Images as a form, and its type: a third less to send."""
    head = b'--limit\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
    return b"".join(head + each + b"\r\n" for each in images) + b"--limit--\r\n", "multipart/form-data; boundary=limit"


class Load(NamedTuple):
    """What clients saw."""

    requests: int
    errors: int
    seconds: float
    p50: float
    p99: float
    cpu: float
    """Processor time of the clients themselves."""


def generate(
    port: int, bodies: Sequence[tuple[bytes, str]], *, clients: int, seconds: float, most: int = 1 << 62
) -> Load:
    """Ask as fast as answers come, from some connections at once."""
    times: list[float] = []
    errors = 0
    left = most
    lock = threading.Lock()
    begin, cpu = time.perf_counter(), time.process_time()

    def work(number: int) -> None:
        nonlocal errors, left
        client = Client(port)
        turn = number
        while time.perf_counter() - begin < seconds:
            with lock:
                if left <= 0:
                    break
                left -= 1
            body, content_type = bodies[turn % len(bodies)]
            turn += clients
            started = time.perf_counter()
            try:
                status = client.ask("POST", "/v1/predict", body, Content_Type=content_type)[0]
            except (OSError, http.client.HTTPException):
                status = 0
            with lock:
                times.append(time.perf_counter() - started)
                errors += status != 200
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    spent = time.perf_counter() - begin
    quantiles = (times[int(share * (len(times) - 1))] if times else float("nan") for share in (0.5, 0.99))
    p50, p99 = quantiles
    return Load(len(times), errors, spent, p50, p99, time.process_time() - cpu)
