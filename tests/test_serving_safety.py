"""Safe by default: tokens, Host and Origin, limits, slow and broken clients, and logs that hold no image."""

import contextlib
import fcntl
import http.client
import io
import json
import logging
import socket
import struct
import termios
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serving_examples import Brightness, Client, Running, made_picture, run_service
from shiftprism.serving import JsonLines, Service, Settings
from shiftprism.serving._tokens import Tokens

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 5000\r\n\r\n"
TOKEN, SECOND = "a-token-of-enough-length", "another-token-of-length"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_service(
        tmp_path_factory.mktemp("service"), max_body=1, max_images=4, max_pixels=1 << 16, header_time=1.0
    ) as service:
        yield service


# tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_another_address_needs_tokens(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHIFTPRISM_TOKENS", raising=False)
    settings = Settings(host=host, store=str(tmp_path / "s.sqlite"))
    with pytest.raises(ValueError, match="Expected `host` to be a loopback address where there are no tokens"):
        Service({"a": tmp_path / "a.onnx"}, settings, lambda path: Brightness())
    assert not (tmp_path / "s.sqlite").exists()
    monkeypatch.setenv("SHIFTPRISM_TOKENS", f"ops:{TOKEN}")
    service = Service({"a": tmp_path / "a.onnx"}, settings, lambda path: Brightness())
    assert service.tokens.required
    service.store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_addresses_need_none(host: str) -> None:
    assert Settings(host=host).is_loopback


def test_tokens_open_what_is_not_public_and_may_be_revoked_while_running(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who may\nalice {TOKEN}\n\nbob {SECOND}\n")
    with run_service(tmp_path, tokens=str(file)) as running:
        client = running.client
        for path in ("/", "/page.css", "/page.js", "/healthz", "/readyz", "/docs", "/openapi.json"):
            assert client.get(path).status == 200, path
        for path in ("/metrics", "/v1/status", "/v1/models", "/v1/models/shapes"):
            assert client.get(path).status == 401, path
            assert Client(client.port, TOKEN).get(path).status == 200, path
        for value in (f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer \u00e9"):
            answer = client.get("/v1/status", Authorization=value)
            assert answer.status == 401, value
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"
        assert client.predict(made_picture()).status == 401
        assert Client(client.port, SECOND).predict(made_picture()).status == 200
        assert client.get("/v1/status", authorization=f"bearer {SECOND}").status == 200, "the scheme has no case"
        file.write_text(f"alice {TOKEN}\n")
        assert Client(client.port, SECOND).get("/v1/status").status == 401
        assert Client(client.port, TOKEN).get("/v1/status").status == 200
        file.write_text("alice short\n")  # a broken file closes; it does not open
        assert Client(client.port, TOKEN).get("/v1/status").status == 401
        file.unlink()
        assert client.get("/v1/status").status == 401


def test_tokens_come_from_the_environment_too(tmp_path: Path) -> None:
    tokens = Tokens(None, {"SHIFTPRISM_TOKENS": f"ops:{TOKEN} {SECOND}"})
    assert tokens.find(f"Bearer {TOKEN}") == "ops"
    assert tokens.find(f"Bearer {SECOND}") == "SHIFTPRISM_TOKENS 1"
    assert tokens.find(None) is None
    assert not Tokens(None, {}).required
    assert Tokens(None, {}).find("Bearer ") is None
    with pytest.raises(ValueError, match="at least 16 characters"):
        Tokens(None, {"SHIFTPRISM_TOKENS": "short"})
    (tmp_path / "t").write_text("one two three\n")
    with pytest.raises(ValueError, match="one `name token` a line"):
        Tokens(tmp_path / "t", {})
    with pytest.raises(FileNotFoundError):
        Tokens(tmp_path / "none", {})


def test_every_token_is_compared_whatever_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal work for right, wrong and missing tokens is what makes their times equal; `tools/` measures them."""
    import hmac

    compared: list[tuple[int, int]] = []
    plain = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return plain(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    tokens = Tokens(None, {"SHIFTPRISM_TOKENS": f"a:{TOKEN} b:{SECOND}"})
    for value in (f"Bearer {TOKEN}", f"Bearer {SECOND}", "Bearer x", None, "Basic y", f"Bearer {'z' * 5000}"):
        compared.clear()
        tokens.find(value)
        assert compared == [(32, 32), (32, 32)]


# other pages


def test_only_our_own_names_and_pages_are_served(running: Running) -> None:
    client, port = running.client, running.client.port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "localhost", f"[::1]:{port}"):
        assert client.get("/v1/status", Host=host).status == 200, host
    for host in (f"evil.example:{port}", "evil.example", "", "localhost.evil.example", f"127.0.0.1.nip.io:{port}"):
        assert client.get("/v1/status", Host=host).status == 421, host
    assert client.get("/v1/status", Origin=f"http://127.0.0.1:{port}").status == 200
    for origin in (
        "http://evil.example",
        "null",
        "http://[",
        f"http://127.0.0.1:{port + 1}",
        f"http://localhost:{port}",
    ):
        assert client.get("/v1/status", Origin=origin).status == 403, origin
    picture = {"Content-Type": "image/png", "Sec-Fetch-Site": "cross-site"}
    assert client.ask("POST", "/v1/predict", made_picture(), picture).status == 403


def test_further_names_may_be_allowed(tmp_path: Path) -> None:
    with run_service(tmp_path, host_names=("prism.example",)) as running:
        assert running.client.get("/v1/status", Host="prism.example").status == 200
        assert running.client.get("/v1/status", Host="prism.example:8443").status == 200
        assert running.client.get("/v1/status", Host="evil.example").status == 421


def test_every_answer_has_its_policy_and_id(running: Running) -> None:
    client = running.client
    for answer in (client.get("/"), client.get("/nowhere"), client.predict(b"x"), client.get("/v1/status", Host="x")):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert len(answer.headers["x-request-id"]) == 36
        assert "server" not in answer.headers
    assert client.get("/healthz", X_Request_ID="my-id.1").headers["x-request-id"] == "my-id.1"
    assert client.get("/healthz", X_Request_ID="no spaces, please").headers["x-request-id"] != "no spaces, please"


# limits


def test_too_much_is_413_before_it_is_read_or_decoded(running: Running) -> None:
    client = running.client
    assert client.ask("POST", "/v1/predict", b"x" * (1 << 20) + b"y", {"Content-Type": "image/png"}).status == 413
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.putrequest("POST", "/v1/predict")  # claims much and sends nothing
    connection.putheader("Content-Length", str(10**15))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    chunked = iter([b"z" * 65536] * 20)
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.request("POST", "/v1/predict", chunked, {"Content-Type": "image/png"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert client.predict(*[made_picture()] * 5).status == 413
    assert client.predict_form(*[made_picture()] * 5).status == 413
    assert client.predict(made_picture(size=300)).status == 413
    assert client.predict(made_picture()).status == 200


def bomb(side: int) -> bytes:
    """A PNG of side × side pixels in a few hundred kilobytes or less."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(b"\0" * (side + 1)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_bombs_are_refused_and_others_served_meanwhile(running: Running) -> None:
    huge = bomb(20_000)
    assert len(huge) < 1 << 20
    with ThreadPoolExecutor(8) as pool:
        bombs = [pool.submit(running.client.predict, huge) for _ in range(8)]
        others = [running.client.predict(made_picture(seed)).status for seed in range(5)]
        assert {each.result().status for each in bombs} == {413}
    assert others == [200] * 5
    text = io.BytesIO()
    info = Image.new("RGB", (8, 8))
    from PIL.PngImagePlugin import PngInfo

    words = PngInfo()
    words.add_text("comment", "a" * 50_000_000, zip=True)
    info.save(text, "PNG", pnginfo=words)
    assert running.client.predict(text.getvalue()).status in (413, 422)
    assert running.client.get("/healthz").status == 200


def test_requests_share_a_budget_of_memory(tmp_path: Path) -> None:
    with run_service(tmp_path, max_memory=0.4) as running:
        client = running.client
        assert client.predict(made_picture(size=64)).status == 200
        answer = client.predict(made_picture(size=400))  # 480,000 bytes of pixels
        assert answer.status == 503
        assert "retry-after" in answer.headers
        assert running.service.memory.used == 0
        assert client.predict(made_picture(size=64)).status == 200


def receive_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def test_headers_that_come_slowly_or_never_end_the_connection(running: Running) -> None:
    port = running.client.port
    with connect(port) as silent, connect(port) as slow, connect(port) as second:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in second.recv(65536)
        second.sendall(b"GET /healthz HT")  # the next request on the same connection

        def trickle() -> None:
            try:
                for _ in range(600):  # each byte would put off a time-out that begins with the last byte
                    slow.sendall(b"a")
                    threading.Event().wait(0.1)
            except OSError:
                return

        thread = threading.Thread(target=trickle)
        thread.start()
        answer = receive_all(slow)
        thread.join()
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"application/problem+json" in answer
        assert receive_all(silent) == b""
        assert b"408" in receive_all(second)


def test_headers_have_a_limit(running: Running) -> None:
    with connect(running.client.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        try:
            for number in range(200):
                connection.sendall(f"X-{number}: {'a' * 1000}\r\n".encode())
        except OSError:
            pass
        assert b" 431 " in connection.recv(65536)
    with connect(running.client.port) as connection:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert receive_all(connection).startswith(b"HTTP/1.1 400 ")


def test_a_body_that_comes_slowly_is_408(tmp_path: Path) -> None:
    with run_service(tmp_path, time_limit=3.0) as running, connect(running.client.port) as connection:
        connection.sendall(HEAD + b"abc")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
        assert running.service.memory.used == 0
        # on busy cores the first prediction may take longer than the limit, which is an answer of its own
        assert 200 in {running.client.predict(made_picture()).status for _ in range(3)}


def wait_until_quiet(connection: socket.socket, seconds: float) -> None:
    """Wait until nothing new has arrived for so long; nothing is read."""
    waiting, since = b"", time.monotonic()
    while time.monotonic() - since < seconds:
        arrived = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
        if arrived != waiting:
            waiting, since = arrived, time.monotonic()
        time.sleep(0.1)


def test_a_client_that_does_not_read_its_answers_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn alone would wait for ever, with the answers in its memory."""
    monkeypatch.setattr("shiftprism.serving._server._READ_TIME", 0.5)
    with run_service(tmp_path, time_limit=2.0) as running, connect(running.client.port) as connection:
        page = len(running.client.get("/openapi.json").body)
        count = (64 << 20) // page  # more than the system's own buffers hold
        connection.settimeout(0.5)
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
        wait_until_quiet(connection, 5.0)  # counted from there: on busy cores it takes seconds to fill the buffers
        assert running.client.predict(made_picture()).status == 200
        received = 0
        with contextlib.suppress(ConnectionError):  # what had been sent is still there, and then the end
            connection.settimeout(30)
            while part := connection.recv(1 << 20):
                received += len(part)
        assert received < count * page


def test_many_half_open_connections_leave_room_for_others(running: Running) -> None:
    """A short form of `tools/serving_trial.py`, which opens a thousand."""
    half_open = [connect(running.client.port) for _ in range(200)]
    try:
        for each in half_open:
            each.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: loc")
        assert [running.client.predict(made_picture(seed)).status for seed in range(5)] == [200] * 5
    finally:
        for each in half_open:
            each.close()


def test_a_client_that_goes_away_leaves_nothing_behind(running: Running) -> None:
    for sent in (b"", b"abc", b"x" * 1000):
        with connect(running.client.port) as connection:
            connection.sendall(HEAD + sent)
    assert running.client.predict(made_picture()).status == 200
    for _ in range(200):
        if running.service.memory.used == 0:
            break
        threading.Event().wait(0.05)
    assert running.service.memory.used == 0
    assert running.service.waiting == 0


# logs


class Broken(Brightness):
    def __call__(self, images: Any) -> Any:
        if images.shape[-1] == 13:
            raise KeyError("a secret of the inside")
        return super().__call__(images)


def test_logs_are_json_lines_without_images_and_answers_without_internals(tmp_path: Path) -> None:
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    log = logging.getLogger("shiftprism.serving")
    handler, level = Handler(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with run_service(tmp_path, {"shapes": Broken()}) as running:
            picture = made_picture(size=20)
            running.client.predict(picture)
            failed = running.client.predict(made_picture(size=13))
            assert failed.status == 500
            assert b"secret" not in failed.body
            assert running.client.predict(picture).status == 200
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    records = [json.loads(line) for line in lines]
    # a connection of an earlier test may still be closing; its status is another
    answered = [each for each in records if each["event"] == "request" and each["status"] in (200, 500)]
    requests = [each for each in answered if each["route"] == "/v1/predict"][
        -3:
    ]  # one of an earlier test may come late
    assert [each["status"] for each in requests] == [200, 500, 200]
    assert requests[0]["route"] == "/v1/predict"
    assert requests[0]["images"] == 1
    failures = [each for each in records if each["event"] == "failure"]
    assert [each["request"] for each in failures] == [requests[1]["request"]] == [failed.headers["x-request-id"]]
    assert "a secret of the inside" in failures[0]["traceback"]
    assert not any("iVBOR" in line or "PNG" in line for line in lines)
    assert all("\n" not in line for line in lines)


@pytest.mark.parametrize("name", ["max_body", "max_queue", "time_limit", "port", "wait", "batch"])
def test_settings_are_checked(name: str) -> None:
    given: dict[str, Any] = {name: -1}
    with pytest.raises(ValueError, match=f"Expected `{name}` to be"):
        Settings(**given)


def test_a_model_of_a_fixed_size_refuses_others(tmp_path: Path) -> None:
    class Small(Brightness):
        size = (3, 8, 8)

    class Grey(Brightness):
        size = (1, None, None)

        def __call__(self, images: Any) -> Any:
            assert images.shape[1] == 1
            return super().__call__(np.repeat(images, 3, 1))

    with run_service(tmp_path, {"small": Small(), "grey": Grey()}) as running:
        assert running.client.predict(made_picture(size=8)).status == 200
        answer = running.client.predict(made_picture(size=9))
        assert answer.status == 422
        assert "8 × 8 pixels, and this one has 9 × 9" in answer.json["detail"]
        assert running.client.predict(made_picture(size=9), path="/v1/models/grey/predict").status == 200
