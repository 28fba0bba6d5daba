"""Downloads from a server that cuts the connection, lies about lengths or serves wrong bytes."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shiftprism.datasets import DATASETS, get, load
from shiftprism.datasets._download import ATTEMPTS, Download, fetch, lock

CONTENT = bytes(range(256)) * 2000
HALF = len(CONTENT) // 2


class Handler(BaseHTTPRequestHandler):
    """Answers each request as the next word of `server.script` says, the last one for ever."""

    server: "Server"

    def do_GET(self) -> None:
        script = self.server.script
        span = self.headers.get("Range")
        self.server.asked.append(span)
        word = script.pop(0) if len(script) > 1 else script[0]
        start = int(span.removeprefix("bytes=").rstrip("-")) if span and word != "no ranges" else 0
        getattr(self, word.replace(" ", "_"))(start)

    def head(self, start: int, length: int) -> None:
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def whole(self, start: int) -> None:
        self.head(start, len(CONTENT) - start)
        self.wfile.write(CONTENT[start:])

    no_ranges = whole

    def cut(self, start: int) -> None:
        """Half of what is left, then the line goes dead."""
        self.head(start, len(CONTENT) - start)
        self.wfile.write(CONTENT[start : start + (len(CONTENT) - start) // 2])

    def says_less(self, start: int) -> None:
        self.head(start, HALF)
        self.wfile.write(CONTENT[start : start + HALF])

    def sends_more(self, start: int) -> None:
        self.head(start, len(CONTENT) - start + 100)
        self.wfile.write(CONTENT[start:] + bytes(100))

    def wrong_bytes(self, start: int) -> None:
        self.head(start, len(CONTENT) - start)
        self.wfile.write(bytes(len(CONTENT) - start))

    def wrong_range(self, start: int) -> None:
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start + 1}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - start - 1))
        self.end_headers()
        self.wfile.write(CONTENT[start + 1 :])

    def a_page(self, start: int) -> None:
        self.head(0, 20)
        self.wfile.write(b"<html>Sign in</html>")

    def busy(self, start: int) -> None:
        self.send_error(503)

    def gone(self, start: int) -> None:
        self.send_error(404)

    def no_more(self, start: int) -> None:
        self.send_error(416)

    def hangs_up(self, start: int) -> None:
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """A server on this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[str] = []
        self.asked: list[str | None] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A line that was cut on purpose."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def wanted(server: Server) -> Download:
    return Download((server.address,), "folder/file.bin", len(CONTENT), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")


def quiet(file: str, done: int, size: int) -> None:
    """No progress to show."""


def no_sleep(seconds: float) -> None:
    """As if the time had passed."""


@pytest.mark.parametrize(
    "script",
    [
        ["whole"],
        ["cut", "whole"],
        ["cut", "cut", "cut", "whole"],
        ["cut", "no ranges"],
        ["cut", "wrong range", "whole"],
        ["cut", "no more", "whole"],
        ["says less", "whole"],
        ["sends more", "whole"],
        ["wrong bytes", "whole"],
        ["cut", "wrong bytes", "whole"],
        ["a page", "whole"],
        ["busy", "busy", "whole"],
        ["hangs up", "whole"],
    ],
    ids=", ".join,
)
def test_it_ends_with_the_right_file(script: list[str], server: Server, wanted: Download, tmp_path: Path) -> None:
    server.script = script.copy()
    assert fetch(wanted, tmp_path, quiet, no_sleep) == tmp_path / "folder" / "file.bin"
    assert (tmp_path / "folder" / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "folder").iterdir() if not path.name.startswith(".")] == ["file.bin"]


@pytest.mark.parametrize(
    "word", ["cut", "sends more", "wrong bytes", "a page", "busy", "gone", "hangs up", "wrong range"]
)
def test_a_server_that_never_does_right_leaves_no_file(
    word: str, server: Server, wanted: Download, tmp_path: Path
) -> None:
    server.script = ["cut", word] if word == "wrong range" else [word]
    waits: list[float] = []
    with pytest.raises(ConnectionError, match="put it at") as caught:
        fetch(wanted, tmp_path, quiet, waits.append)
    assert not (tmp_path / "folder" / "file.bin").exists()
    assert str(tmp_path / "folder" / "file.bin") in str(caught.value)
    assert wanted.digest in str(caught.value)
    assert waits == ([] if word == "gone" else [1.0, 2.0, 4.0, 8.0])
    assert len(server.asked) == (1 if word == "gone" else ATTEMPTS)


def test_a_cut_is_continued_where_it_was_even_by_a_later_call(
    server: Server, wanted: Download, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftprism.datasets._download.ATTEMPTS", 1)
    server.script = ["cut", "whole"]
    with pytest.raises(ConnectionError, match=f"cut at byte {HALF} of {len(CONTENT)}"):
        fetch(wanted, tmp_path, quiet, no_sleep)
    assert (tmp_path / "folder" / "file.bin.part").stat().st_size == HALF
    fetch(wanted, tmp_path, quiet, no_sleep)
    assert server.asked == [None, f"bytes={HALF}-"]


def test_what_is_there_and_right_is_not_fetched_again(server: Server, wanted: Download, tmp_path: Path) -> None:
    server.script = ["whole"]
    fetch(wanted, tmp_path, quiet, no_sleep)
    fetch(wanted, tmp_path, quiet, no_sleep)
    assert len(server.asked) == 1


def test_what_is_there_and_wrong_is_replaced(server: Server, wanted: Download, tmp_path: Path) -> None:
    server.script = ["whole"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.bin").write_bytes(CONTENT[:-1])
    assert fetch(wanted, tmp_path, quiet, no_sleep).read_bytes() == CONTENT


def test_another_address_is_asked_when_the_first_fails(server: Server, wanted: Download, tmp_path: Path) -> None:
    server.script = ["gone", "whole"]
    mirrored = wanted._replace(addresses=(server.address, server.address))
    assert fetch(mirrored, tmp_path, quiet, no_sleep).read_bytes() == CONTENT


def test_progress_tells_bytes_so_far_and_in_all(server: Server, wanted: Download, tmp_path: Path) -> None:
    server.script = ["cut", "whole"]
    told: list[tuple[str, int, int]] = []
    fetch(wanted, tmp_path, lambda *news: told.append(news), no_sleep)
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts)
    assert told[-1] == ("folder/file.bin", len(CONTENT), len(CONTENT))


def test_md5_serves_where_a_publisher_gives_no_other(server: Server, wanted: Download, tmp_path: Path) -> None:
    server.script = ["whole"]
    right = wanted._replace(digest=f"md5:{hashlib.md5(CONTENT).hexdigest()}")
    assert fetch(right, tmp_path, quiet, no_sleep).exists()


def test_of_two_at_once_one_waits_and_takes_what_the_other_brought(
    server: Server, wanted: Download, tmp_path: Path
) -> None:
    server.script = ["cut", "whole"]
    found: list[bytes] = []

    def one() -> None:
        found.append(fetch(wanted, tmp_path, quiet, no_sleep).read_bytes())

    threads = [threading.Thread(target=one) for _ in range(4)]
    with lock(tmp_path / "folder" / "file.bin"):
        for thread in threads:
            thread.start()
        assert server.asked == []  # nobody has got past the lock
    for thread in threads:
        thread.join()
    assert found == [CONTENT] * 4
    assert len(server.asked) == 2


def test_a_disk_that_cannot_be_written_is_not_taken_for_the_network(
    server: Server, wanted: Download, tmp_path: Path
) -> None:
    server.script = ["whole"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.bin.part").mkdir()  # no file can be written there
    with pytest.raises(IsADirectoryError):
        fetch(wanted, tmp_path, quiet, no_sleep)


@pytest.fixture
def here(server: Server, wanted: Download, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """cifar10 comes from the server of this test."""
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    monkeypatch.setitem(DATASETS, "cifar10", DATASETS["cifar10"]._replace(downloads=(wanted,)))
    return tmp_path


def test_get_brings_the_publishers_file(server: Server, here: Path) -> None:
    server.script = ["whole"]
    assert get("cifar10", sleep=no_sleep) == [here / "data" / "folder" / "file.bin"]
    assert get("cifar10", here / "elsewhere", sleep=no_sleep) == [here / "elsewhere" / "folder" / "file.bin"]


def test_when_nothing_can_be_reached_the_error_says_what_to_put_where(server: Server, here: Path) -> None:
    server.script = ["busy"]
    with pytest.raises(ConnectionError, match="put it at") as caught:
        get("cifar10", sleep=no_sleep)
    assert str(here / "data" / "folder" / "file.bin") in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"cifar-10-batches-bin, or cifar-10-binary\.tar\.gz") as offline:
        load("cifar10", "test")
    assert str(here / "data") in str(offline.value)


def test_a_name_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"`name` to be one of .*cifar10"):
        get("cifar11")


def test_every_download_has_a_digest_that_can_be_compared() -> None:
    lengths = {"sha256": 64, "md5": 32}
    for entry in DATASETS.values():
        for item in entry.downloads:
            algorithm, _, digest = item.digest.partition(":")
            assert len(bytes.fromhex(digest)) * 2 == lengths[algorithm]
            assert all(address.startswith(("https://", "http://")) for address in item.addresses)
            assert item.size > 0
