"""Decoding in a few processes of its own: a bomb, a crash or an endless file ends one of them, not the service."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftprism.serving._decoder import ANSWER, FRAME, GOOD, LENGTH, TOO_LARGE, UNKNOWN_FORMAT
from shiftprism.serving._problems import Problem

Pixels = NDArray[np.uint8]
_CHUNK = 8
"""Images that a process gets at once: a question and an answer for each would cost more than a small image."""
_STATUS = {UNKNOWN_FORMAT: 415, TOO_LARGE: 413}
_BUFFER = 1 << 22


class _Lost(Exception):
    """The process died, or took too long and was ended."""


class Request(NamedTuple):
    """What the images are to be decoded to."""

    grey: bool
    most_pixels: int
    accept: Callable[[int, int], None]
    """Called with height and width before an image is decoded; raises the Problem of an image that is refused."""


class Decoders:
    """A fixed number of processes. Images wait for the next that is free."""

    def __init__(self, count: int, time_limit: float) -> None:
        self._count, self._time_limit = count, time_limit
        self._idle: asyncio.LifoQueue[_Decoder] = asyncio.LifoQueue()
        self._all: list[_Decoder] = []
        self.restarts = 0
        """How many processes had to be replaced."""

    async def start(self) -> None:
        """Start the processes."""
        for _ in range(self._count):
            decoder = _Decoder()
            await decoder.start()
            self._all.append(decoder)
            self._idle.put_nowait(decoder)

    async def close(self) -> None:
        """End the processes."""
        for decoder in self._all:
            await decoder.stop()

    async def decode(self, images: Sequence[bytes], request: Request) -> "list[Pixels | Problem]":
        """(C, H, W) of each image, or what is wrong with it."""
        size = min(_CHUNK, -(-len(images) // self._count))  # so that every process has a part
        parts = [images[first : first + size] for first in range(0, len(images), size)]
        tasks = [asyncio.ensure_future(self._decode_part(part, request)) for part in parts]
        try:
            return [each for part in await asyncio.gather(*tasks) for each in part]
        finally:
            for task in tasks:
                task.cancel()

    async def _decode_part(self, images: Sequence[bytes], request: Request) -> "list[Pixels | Problem]":
        try:
            return await self._ask(images, request)
        except _Lost:
            if len(images) == 1:
                return [Problem(422, "The image cannot be decoded: its decoder crashed or took too long.")]
        return [each for image in images for each in await self._decode_part([image], request)]

    async def _ask(self, images: Sequence[bytes], request: Request) -> "list[Pixels | Problem]":
        decoder = await self._idle.get()
        good = False
        try:
            answers = await asyncio.wait_for(decoder.decode(images, request), self._time_limit)
            good = True
            return answers
        except (asyncio.TimeoutError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            raise _Lost from error
        finally:
            # also where the request was cancelled: an answer under way would be taken for the next one's
            if not good:
                self.restarts += 1
                await asyncio.shield(self._replace(decoder))
            else:
                self._idle.put_nowait(decoder)

    async def _replace(self, decoder: "_Decoder") -> None:
        try:
            await decoder.stop()
            await decoder.start()
        finally:
            self._idle.put_nowait(decoder)


class _Decoder:
    """One process."""

    _process: asyncio.subprocess.Process

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shiftprism.serving._decoder"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_BUFFER,
            start_new_session=True,  # Ctrl-C in the terminal is for the service, which still has images to answer
        )

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._process._transport.close()  # type: ignore[attr-defined]  # else its pipes wait for the garbage collector

    async def decode(self, images: Sequence[bytes], request: Request) -> "list[Pixels | Problem]":
        source, target = self._process.stdout, self._process.stdin
        assert source is not None
        assert target is not None
        target.write(FRAME.pack(len(images), request.grey, request.most_pixels))
        target.writelines([LENGTH.pack(len(image)) for image in images])
        for image in images:
            target.write(image)
            await target.drain()
        answers: list[Problem | None] = []
        for _ in images:
            problem, height, width = await _read_answer(source)
            if problem is None:
                try:
                    request.accept(height, width)
                except Problem as error:
                    problem = error
            answers.append(problem)
        target.write(bytes(answer is None for answer in answers))
        await target.drain()
        return [await _read_pixels(source, request.grey) if each is None else each for each in answers]


async def _read_answer(source: asyncio.StreamReader) -> tuple[Problem | None, int, int]:
    status, height, width = ANSWER.unpack(await source.readexactly(ANSWER.size))
    if status == GOOD:
        return None, height, width
    text = (await source.readexactly(height)).decode()
    return Problem(_STATUS.get(status, 422), f"The image cannot be used: {text}."), 0, 0


async def _read_pixels(source: asyncio.StreamReader, grey: bool) -> "Pixels | Problem":
    problem, height, width = await _read_answer(source)
    if problem is not None:
        return problem
    channels = 1 if grey else 3
    content = await source.readexactly(channels * height * width)
    return np.frombuffer(content, np.uint8).reshape(channels, height, width)
