"""The ASGI server: uvicorn with what it lacks, limits on headers that come slowly, at length, or never."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from shiftprism._extras import need
from shiftprism.serving._app import create_app
from shiftprism.serving._problems import MEDIA_TYPE, Problem, title
from shiftprism.serving._service import Service
from shiftprism.serving._settings import Settings

MOST_HEADER_BYTES = 1 << 15
_READ_TIME = 30.0
"""Seconds for a client to read its answer."""
_MOST_OPEN = 4096
"""Connections that have not sent their headers yet. With one more, the oldest is closed: new ones may be honest."""


def make_protocol(settings: Settings) -> Any:
    """uvicorn's HTTP protocol, with a deadline for each request to arrive, and a limit on its headers.

    uvicorn itself waits for ever for the headers of a request: `timeout_keep_alive` begins after the first answer, and
    every byte puts it off. A deadline here begins with the connection, or with the first byte of the next request,
    and no byte puts it off.
    """
    need("httptools", "serve")
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    waiting: dict[Any, None] = {}  # in the order of their arrival

    class Protocol(HttpToolsProtocol):
        deadline: asyncio.TimerHandle | None = None
        reading: asyncio.TimerHandle | None = None
        header_bytes = 0
        in_headers = True

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_headers()
            if len(waiting) > _MOST_OPEN:
                next(iter(waiting)).transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._set_deadline(None, None)
            self._set_reading(None)
            waiting.pop(self, None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            before = self.header_bytes if self.in_headers else 0
            super().data_received(data)
            self.header_bytes = before + len(data)
            # a long body in the same chunk as the headers is no long header: then `in_headers` has ended
            if self.in_headers and self.header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
                self._refuse(431, f"The headers of a request may have {MOST_HEADER_BYTES:,} bytes at most.")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if not self.in_headers:  # the next request on this connection
                self._expect_headers()

        def on_headers_complete(self) -> None:
            self.in_headers = False
            waiting.pop(self, None)
            # The application answers a slow body with 408. This is for a client that goes on sending after its answer.
            self._set_deadline(settings.time_limit + 5, self._end)
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._set_deadline(None, None)
            # to be answered, and for the client to read the answer: uvicorn would wait for ever for one that does not
            self._set_reading(settings.time_limit + _READ_TIME)
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._set_reading(settings.time_limit + _READ_TIME if self.pipeline else None)
            super().on_response_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "This is not a valid HTTP request.")

        def timeout_keep_alive_handler(self) -> None:
            if self.transport.get_write_buffer_size():  # to close would wait for a client that does not read
                self._end()
            else:
                super().timeout_keep_alive_handler()

        def _unsupported_upgrade_warning(self) -> None:
            """An upgrade that was asked for and is not made is no news."""

        def _expect_headers(self) -> None:
            self.in_headers, self.header_bytes = True, 0
            waiting[self] = None
            self._set_deadline(settings.header_time, self._end_headers)

        def _set_deadline(self, seconds: float | None, act: Callable[[], None] | None) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
            self.deadline = None if seconds is None or act is None else self.loop.call_later(seconds, act)

        def _set_reading(self, seconds: float | None) -> None:
            if self.reading is not None:
                self.reading.cancel()
            self.reading = None if seconds is None else self.loop.call_later(seconds, self._end)

        def _end_headers(self) -> None:
            if self.header_bytes:
                self._refuse(408, f"The headers did not arrive within {settings.header_time:g} seconds.")
            else:
                self._end()

        def _end(self) -> None:
            self.transport.abort()

        def _refuse(self, status: int, detail: str) -> None:
            """An answer from before the application."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._end()  # an answer is under way: a second one would be taken for a part of it
                return
            body = Problem(status, detail).to_bytes()
            lines = [f"HTTP/1.1 {status} {title(status)}", f"content-type: {MEDIA_TYPE}"]
            lines += [f"content-length: {len(body)}", "connection: close", "", ""]
            self.transport.write("\r\n".join(lines).encode() + body)
            self.transport.close()

    return Protocol


def make_server(service: Service) -> Any:
    """A uvicorn server, to be run by `server.run()`."""
    uvicorn = need("uvicorn", "serve")
    settings = service.settings
    _raise_file_limit()
    config = uvicorn.Config(
        create_app(service),
        host=settings.host.strip("[]"),
        port=settings.port,
        http=make_protocol(settings),
        ws="none",
        lifespan="on",
        loop="asyncio",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(settings.time_limit) + 5,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return uvicorn.Server(config)


def _raise_file_limit() -> None:
    """A thousand idle connections should not use up what files may be open."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
