"""Errors as answers: problem+json (RFC 9457), without internals."""

import json
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """What is wrong with a request, or why it cannot be served now."""

    def __init__(self, status: int, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    def to_dict(self) -> dict[str, Any]:
        """The members that RFC 9457 names."""
        return {"type": "about:blank", "title": title(self.status), "status": self.status, "detail": self.detail}

    def to_bytes(self) -> bytes:
        """The body of the answer."""
        return json.dumps(self.to_dict(), ensure_ascii=False).encode()


def title(status: int) -> str:
    """The phrase of a status: 404 -> Not Found."""
    return HTTPStatus(status).phrase


def overloaded(reason: str) -> Problem:
    """The service is busy: the client should come back in a second."""
    return Problem(503, f"{reason}; try again in a moment.", retry_after=1)
