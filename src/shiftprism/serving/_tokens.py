"""Bearer tokens: from a file that is read again when it changes, or from the environment."""

import hashlib
import hmac
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from shiftprism._errors import wrong
from shiftprism._files import check_file

VARIABLE = "SHIFTPRISM_TOKENS"
"""The environment variable: `name:token` or `token`, with spaces between several."""
_SHORTEST = 16
_LOG = logging.getLogger("shiftprism.serving")


class Tokens:
    """The tokens that are valid now, by their digests: comparing takes as long for a wrong token as for a right one."""

    def __init__(self, file: Path | None, environment: Mapping[str, str] = os.environ) -> None:
        self._file = file
        words = environment.get(VARIABLE, "").split()
        pairs = [word.partition(":")[::2] if ":" in word else (f"{VARIABLE} {n}", word) for n, word in enumerate(words)]
        self._fixed = _digest_tokens(dict(pairs), VARIABLE)
        self._stamp: tuple[int, ...] | None = None
        self._valid = self._fixed
        if file is not None:
            self._stamp = _stamp(file)  # before it is read: a change in between is seen by the next request
            self._valid = self._fixed | _read_tokens(file)
        self.required = bool(self._fixed) or file is not None
        """Whether requests need a token. A file that has lost its last token still requires one."""

    def find(self, authorization: str | None) -> str | None:
        """The name of the token in the header's value; None where it is missing or not valid."""
        self._refresh()
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == "bearer" else "")
        found = None
        for name, digest in self._valid.items():  # all of them, always
            if hmac.compare_digest(digest, given):
                found = name
        return found

    def _refresh(self) -> None:
        if self._file is None or (stamp := _stamp(self._file)) == self._stamp:
            return
        try:
            self._valid = self._fixed | _read_tokens(self._file)
            _LOG.info("tokens", extra={"fields": {"event": "tokens", "valid": len(self._valid)}})
        except (OSError, ValueError) as error:  # closed rather than open
            self._valid = self._fixed
            _LOG.error("tokens", extra={"fields": {"event": "tokens", "problem": str(error)}})
        self._stamp = stamp


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_tokens(file: Path) -> dict[str, bytes]:
    """One `name token` a line; empty lines and those that begin with # are left out."""
    pairs: dict[str, str] = {}
    try:
        text = check_file(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise wrong("tokens", "a text file", f"{file} ({error.reason})", "write one `name token` a line") from error
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] in pairs:
            got = f"{file} whose line {number} is not, or repeats a name"
            raise wrong("tokens", "one `name token` a line", got, "correct the line")
        pairs[words[0]] = words[1]
    return _digest_tokens(pairs, str(file))


def _digest_tokens(pairs: Mapping[str, str], where: str) -> dict[str, bytes]:
    short = [name for name, token in pairs.items() if len(token) < _SHORTEST]
    if short:
        advice = "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes one"
        raise wrong("token", f"at least {_SHORTEST} characters", f"fewer for {short[0]} in {where}", advice)
    return {name: _digest(token) for name, token in pairs.items()}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
