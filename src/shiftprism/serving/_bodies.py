"""The body of a request -> the bytes of its images. Everything stays in memory; nothing becomes a path."""

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator
from typing import Any

from shiftprism._extras import need
from shiftprism.serving._memory import Lease
from shiftprism.serving._problems import Problem

_FIELD = "image"
_LARGE = 1 << 18
"""Bodies above this size are taken apart in a thread."""


async def read_body(chunks: AsyncIterator[bytes], length: str | None, lease: Lease, most: int, time: float) -> bytes:
    """The whole body. Too long is 413, too slow 408, more than there is memory for 503."""
    if length is not None and not length.isdecimal():
        raise Problem(400, "Content-Length is not a number.")
    if length is not None and (len(length) > 18 or int(length) > most):
        raise _too_long(most)
    body = bytearray()

    async def receive() -> None:
        async for chunk in chunks:
            if len(body) + len(chunk) > most:
                raise _too_long(most)
            lease.take(len(chunk))
            body.extend(chunk)

    try:
        await asyncio.wait_for(receive(), time)
    except asyncio.TimeoutError:
        raise Problem(408, f"The body of the request did not arrive within {time:g} seconds.") from None
    return bytes(body)


async def read_images(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The images of a body: multipart/form-data, JSON with base64, or one image as it is."""
    if len(body) > _LARGE:
        return await asyncio.to_thread(split_images, body, content_type, most)
    return split_images(body, content_type, most)


def split_images(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The images of a body, at most `most`."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        images = _split_multipart(body, content_type, most)
    elif kind == "application/json":
        images = _split_json(body)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        images = [body]
    else:
        kinds = "multipart/form-data, application/json, image/* or application/octet-stream"
        raise Problem(415, f"The Content-Type must be {kinds}.")
    if len(images) > most:
        raise _too_many(most)
    if not images or not all(images):
        raise Problem(422, "The request has no image." if not images else "One of the images is empty.")
    return images


def read_json(body: bytes) -> Any:
    """A JSON value; anything else is 400."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "The body is not valid JSON.") from None


def _split_json(body: bytes) -> list[bytes]:
    value = read_json(body)
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images) or len(value) > 1:
        raise Problem(422, 'The body must be {"images": ["…", …]}, each image in base64.')
    try:
        return [base64.b64decode(image, validate=True) for image in images]
    except (binascii.Error, ValueError):
        raise Problem(422, "An image is not valid base64.") from None


def _split_multipart(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The parts named `image`."""
    multipart = need("python_multipart.multipart", "serve")
    boundary = multipart.parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise Problem(400, "multipart/form-data needs a boundary.")
    images: list[bytearray] = []
    names: list[bytes] = []
    header: dict[str, bytearray] = {"field": bytearray(), "value": bytearray()}

    def begin() -> None:
        images.append(bytearray())
        names.append(b"")
        if len(images) > most:
            raise _too_many(most)

    def end_header() -> None:
        if bytes(header["field"]).lower() == b"content-disposition":
            names[-1] = multipart.parse_options_header(bytes(header["value"]))[1].get(b"name", b"")
        header["field"].clear()
        header["value"].clear()

    parser = multipart.MultipartParser(
        boundary,
        {
            "on_part_begin": begin,
            "on_header_field": lambda data, first, last: header["field"].extend(data[first:last]),
            "on_header_value": lambda data, first, last: header["value"].extend(data[first:last]),
            "on_header_end": end_header,
            "on_part_data": lambda data, first, last: images[-1].extend(data[first:last]),
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except need("python_multipart.exceptions", "serve").ParseError:
        raise Problem(400, "The body is not valid multipart/form-data.") from None
    if any(name != _FIELD.encode() for name in names):
        raise Problem(422, f"Every part of the form must be named {_FIELD}.")
    if not body.rstrip(b"\r\n").endswith(b"--" + boundary + b"--"):
        raise Problem(400, "The body is not valid multipart/form-data: its end is missing.")
    return [bytes(image) for image in images]


def _too_long(most: int) -> Problem:
    return Problem(413, f"The body of a request may have {most:,} bytes at most.")


def _too_many(most: int) -> Problem:
    return Problem(413, f"A request may have {most} images at most.")
