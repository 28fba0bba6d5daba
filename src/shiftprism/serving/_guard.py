"""What every request passes first: its id, Host and Origin, its token; and what every answer carries."""

import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from shiftprism.serving._metrics import Metrics
from shiftprism.serving._problems import MEDIA_TYPE, Problem, overloaded
from shiftprism.serving._settings import Settings
from shiftprism.serving._tokens import Tokens

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

PUBLIC = frozenset({"/", "/page.css", "/page.js", "/icon.svg", "/docs", "/openapi.json", "/healthz", "/readyz"})
"""What needs no token: the page, which asks for one, the description of the API, and what a balancer asks."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MOST_ACTIVE = 8192
"""Requests at a time, most of which can only wait for slow clients: each holds a connection and a little memory."""
_LOG = logging.getLogger("shiftprism.serving")


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: App, settings: Settings, tokens: Tokens, metrics: Metrics) -> None:
        self._app, self._settings, self._tokens, self._metrics = app, settings, tokens, metrics
        self._active = 0
        self._encoded = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = _read_headers(scope)
        given = headers.get("x-request-id", "")
        request = given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        scope["request_id"] = request
        status = 0
        self._active += 1

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                extra = [pair for pair in self._encoded if pair[0] not in own]
                message["headers"] = [*message["headers"], *extra, (b"x-request-id", request.encode())]
            await send(message)

        try:
            self._check(scope, headers)
            await self._app(scope, receive, send_on)
        except Problem as problem:
            await send_problem(problem, send_on)
        except Exception:
            _LOG.exception("failure", extra={"fields": {"event": "failure", "request": request}})
            if not status:
                await send_problem(Problem(500, "Something went wrong here; the log has this request's id."), send_on)
        finally:
            self._active -= 1
            self._note(scope, status or 499, time.perf_counter() - began)  # 499: the client has gone

    def _check(self, scope: Message, headers: dict[str, str]) -> None:
        if self._active > _MOST_ACTIVE:
            raise overloaded("Too many requests are under way")
        host = headers.get("host", "")
        if not self._is_known(host):
            raise Problem(421, "The service is not known under this Host.")
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, host):
            raise Problem(403, "Requests from other pages are refused.")
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] != "GET":
            raise Problem(403, "Requests from other pages are refused.")
        if self._tokens.required and scope["path"] not in PUBLIC:
            name = self._tokens.find(headers.get("authorization"))
            if name is None:
                raise Problem(401, "A valid token is needed: Authorization: Bearer ….")
            scope["token_name"] = name

    def _is_known(self, host: str) -> bool:
        """On a loopback address only its own names: another page may let its own name point here (DNS rebinding)."""
        known = {name.lower() for name in self._settings.host_names}
        if not self._settings.is_loopback and not known:
            return True
        name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        own = {"localhost", "127.0.0.1", "[::1]", self._settings.host.lower()}
        return name.lower() in (known | own if self._settings.is_loopback else known) or host.lower() in known

    def _note(self, scope: Message, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        fields = {"event": "request", "request": scope["request_id"], "method": method, "route": route}
        fields |= {"status": status, "milliseconds": round(1000 * seconds, 2)}
        fields |= {name: scope[name] for name in ("model", "images", "token_name") if name in scope}
        _LOG.info("request", extra={"fields": fields})


def _is_same(origin: str, host: str) -> bool:
    """Whether a page's origin is the service itself."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # http://[
        return False


def _read_headers(scope: Message) -> dict[str, str]:
    """By lower-case name; one that comes twice has the values of both, so that no check can be led astray."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


async def send_problem(problem: Problem, send: Send) -> None:
    """Answer with problem+json."""
    body = problem.to_bytes()
    headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), **problem.headers}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, and the fields of the event. Images never reach a log."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, Any] = getattr(record, "fields", None) or {"event": record.name, "text": record.getMessage()}
        line = {"time": stamp, "level": record.levelname.lower(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
