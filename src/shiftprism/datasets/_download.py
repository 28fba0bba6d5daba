"""Fetching a file so that what is not whole and right is never taken for data."""

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far and the bytes in all."""
ATTEMPTS = 5
_BLOCK = 1 << 20
# Asking again will not help.
_PERMANENT = frozenset((400, 401, 403, 404, 405, 410, 451))


class Download(NamedTuple):
    """A file of the publisher's."""

    addresses: tuple[str, ...]
    to: str
    """Where it goes, below the root."""
    size: int
    digest: str
    """`sha256:…`, or `md5:…` where the publisher's is the only one known for certain."""


class _Failed(Exception):
    """What one attempt failed on; `again` where another may do better."""

    def __init__(self, problem: str, again: bool = True) -> None:
        super().__init__(problem)
        self.again = again


def fetch(download: Download, root: Path, progress: Progress, sleep: Callable[[float], None]) -> Path:
    """The file, whole and with the right digest, or an error.

    Only such a file ever has its name. What a cut leaves is kept beside it as `.part` and continued by the next
    attempt, after 1, 2, 4 … seconds, or by the next call. Of two callers one waits for the other.
    """
    target = root / download.to
    with locked(target):
        if target.exists() and right(target, download.digest):
            return target
        for attempt in range(ATTEMPTS):
            failures = [_attempt(address, download, target, progress) for address in download.addresses]
            if None in failures:
                return target
            problems = [f"{address}: {failure}" for address, failure in zip(download.addresses, failures, strict=True)]
            if not any(failure.again for failure in failures if failure):
                break
            if attempt + 1 < ATTEMPTS:
                sleep(2.0**attempt)
        raise ConnectionError(
            f"{download.to} could not be fetched ({'; '.join(problems)}). Fetch it where there is a network, from "
            f"{download.addresses[0]} ({download.size} bytes, {download.digest}), and put it at {target}."
        )


def _attempt(address: str, download: Download, target: Path, progress: Progress) -> _Failed | None:
    """Continue the part there is, check the whole and give it its name."""
    part = target.with_name(f"{target.name}.part")
    have = part.stat().st_size if part.exists() else 0
    try:
        if have < download.size:
            _receive(address, part, have, download, progress)
        if part.stat().st_size != download.size or not right(part, download.digest):
            found = part.stat().st_size
            part.unlink()  # there is no telling which of its bytes are wrong
            raise _Failed(
                f"it served {found} bytes that are not the file of {download.size} bytes with {download.digest}"
            )
    except _Failed as failure:
        return failure
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
    return None


def _receive(address: str, part: Path, have: int, download: Download, progress: Progress) -> None:
    with _answer(address, part, have) as answer:
        done = _start(answer, have)
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            # one block past the end is enough to know that it is another file
            while done <= download.size and (block := _block(answer)):
                file.write(block)
                done += len(block)
                progress(download.to, done, download.size)
    if done < download.size:
        raise _Failed(f"the line was cut at byte {done} of {download.size}")


def _answer(address: str, part: Path, have: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "shiftprism", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        request = urllib.request.Request(address, headers=headers)
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # there is nothing from there on: what we have is not a part of it
            part.unlink()
        raise _Failed(f"HTTP status {error.code}", again=error.code not in _PERMANENT) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(str(getattr(error, "reason", error)) or type(error).__name__) from None
    return answer


def _start(answer: http.client.HTTPResponse, have: int) -> int:
    """Where in the file the bytes of this answer belong: a server may ignore the wish to continue."""
    if answer.status != 206:
        return 0
    span = answer.headers.get("Content-Range", "")
    if not span.startswith(f"bytes {have}-"):
        raise _Failed(f"it continued with {span!r} where byte {have} was asked for")
    return have


def _block(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_BLOCK)
    except (OSError, http.client.HTTPException):
        return b""  # a cut, which the count of bytes shows


def right(path: Path, digest: str) -> bool:
    """Whether the file has the digest "algorithm:hexadecimal".

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     right(Path(file.name), "md5:d41d8cd98f00b204e9800998ecf8427e")
    True
    """
    algorithm, _, expected = digest.partition(":")
    found = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest() == expected


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Alone with `target`: another process or thread that wants it waits here. The lock falls when its holder dies."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("wb") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
