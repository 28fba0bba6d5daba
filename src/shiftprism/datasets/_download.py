"""Downloading files. A file gets its name only when it is complete and has the right digest."""

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
"""Called with the file's name, the number of bytes so far and the number in all."""
ATTEMPTS = 5
_BLOCK = 1 << 20
# HTTP statuses after which another attempt will not help.
_PERMANENT = frozenset((400, 401, 403, 404, 405, 410, 451))


class Download(NamedTuple):
    """A file to download."""

    addresses: tuple[str, ...]
    to: str
    """Its path below the root."""
    size: int
    digest: str
    """`sha256:…`, or `md5:…` if only the publisher's MD5 is known."""


class _Failure(Exception):
    """Why an attempt failed. `again` says whether another attempt may succeed."""

    def __init__(self, problem: str, again: bool = True) -> None:
        super().__init__(problem)
        self.again = again


def fetch(download: Download, root: Path, progress: Progress, sleep: Callable[[float], None]) -> Path:
    """Download a file into `root`, or raise an error that says where to put it by hand.

    An interrupted download stays beside the file as `.part`. The next attempt, after 1, 2, 4 … seconds, or the next
    call resumes it. If two callers want the same file, one waits for the other.
    """
    target = root / download.to
    with lock(target):
        if target.exists() and has_digest(target, download.digest):
            return target
        for attempt in range(ATTEMPTS):
            failures = [_try_address(address, download, target, progress) for address in download.addresses]
            if None in failures:
                return target
            problems = [f"{address}: {failure}" for address, failure in zip(download.addresses, failures, strict=True)]
            if not any(failure.again for failure in failures if failure):
                break
            if attempt + 1 < ATTEMPTS:
                sleep(2.0**attempt)
        raise ConnectionError(
            f"{download.to} could not be downloaded ({'; '.join(problems)}). Download it elsewhere, from "
            f"{download.addresses[0]} ({download.size} bytes, {download.digest}), and put it at {target}."
        )


def _try_address(address: str, download: Download, target: Path, progress: Progress) -> _Failure | None:
    """Resume the partial file, check it when it is complete, and give it its name."""
    part = target.with_name(f"{target.name}.part")
    have = part.stat().st_size if part.exists() else 0
    try:
        if have < download.size:
            _receive(address, part, have, download, progress)
        size = part.stat().st_size
        if size != download.size or not has_digest(part, download.digest):
            part.unlink()  # it is not known which of its bytes are wrong
            raise _Failure(
                f"it served {size} bytes that are not the file of {download.size} bytes with {download.digest}"
            )
    except _Failure as failure:
        return failure
    with part.open("rb") as file:
        os.fsync(file.fileno())  # a crash after the renaming must not leave a file with holes
    os.replace(part, target)
    return None


def _receive(address: str, part: Path, have: int, download: Download, progress: Progress) -> None:
    with _open_response(address, part, have) as response:
        done = _start_byte(response, have)
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            # One block beyond the expected end is enough to see that it is another file.
            while done <= download.size and (block := _read_block(response)):
                file.write(block)
                done += len(block)
                progress(download.to, done, download.size)
    if done < download.size:
        raise _Failure(f"the connection was cut at byte {done} of {download.size}")


def _open_response(address: str, part: Path, have: int) -> http.client.HTTPResponse:
    # Without compression, so that the number of bytes received is a place in the file.
    headers = {"User-Agent": "shiftprism", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        request = urllib.request.Request(address, headers=headers)
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the server's file ends before this byte, so our part belongs to another file
            part.unlink()
        raise _Failure(f"HTTP status {error.code}", again=error.code not in _PERMANENT) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Failure(str(getattr(error, "reason", error)) or type(error).__name__) from None
    return response


def _start_byte(response: http.client.HTTPResponse, have: int) -> int:
    """The place in the file at which this response begins. A server may ignore the request to resume."""
    if response.status != 206:
        return 0
    span = response.headers.get("Content-Range", "")
    if not span.startswith(f"bytes {have}-"):
        raise _Failure(f"it resumed with {span!r} where byte {have} was requested")
    return have


def _read_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except (OSError, http.client.HTTPException):
        return b""  # the connection was cut, which the number of bytes will show


def has_digest(path: Path, digest: str) -> bool:
    """Whether the file has the digest "algorithm:hexadecimal".

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     has_digest(Path(file.name), "md5:d41d8cd98f00b204e9800998ecf8427e")
    True
    """
    algorithm, _, expected = digest.partition(":")
    actual = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            actual.update(block)
    return actual.hexdigest() == expected


@contextmanager
def lock(target: Path) -> Iterator[None]:
    """Exclusive access to `target` among processes and threads. The lock is released when its holder dies."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("wb") as file:
        if sys.platform != "win32":  # there, two downloads of one file at once are not prevented
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
