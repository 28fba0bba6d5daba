"""Micro-batching: images of several requests are forwarded together, after a bounded wait."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from shiftprism.serving._decoding import Pixels
from shiftprism.verdicts import Verdicts


class _Job(NamedTuple):
    images: Sequence[Pixels]
    answer: "asyncio.Future[Verdicts]"


class QueueClosed(Exception):
    """The detector behind this queue has been replaced."""


class Batcher:
    """A queue of images before one detector, which a single thread works off."""

    def __init__(
        self,
        detect: "Callable[[Pixels], Verdicts]",
        *,
        batch: int,
        wait: float,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._detect, self._batch, self._wait, self._observe = detect, batch, wait, observe
        self._jobs: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "detector")
        self._task = asyncio.ensure_future(self._run())

    async def detect(self, images: Sequence[Pixels]) -> Verdicts:
        """The verdicts of images of one size."""
        if self._closing:  # a new detector has taken the place of this one, or the service stops
            raise QueueClosed
        answer: asyncio.Future[Verdicts] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(images, answer))
        self._arrived.set()
        return await answer

    async def close(self) -> None:
        """Answer what waits, then end."""
        self._closing = True
        self._arrived.set()
        await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            if not self._jobs:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                # nothing was running: others may come in a moment; while one batch runs, the next gathers by itself
                await self._gather()
                continue
            await self._answer(self._take())

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        """Forward the images of jobs together and give each job its verdicts."""
        if not jobs:
            return
        try:
            verdicts = await asyncio.get_running_loop().run_in_executor(self._thread, self._forward, jobs)
        except Exception as error:
            if len(jobs) > 1:  # one of them is at fault, and the others are somebody else's
                for job in jobs:
                    await self._answer([job])
            elif not jobs[0].answer.done():
                jobs[0].answer.set_exception(error)
            return
        first = 0
        for job in jobs:
            if not job.answer.done():
                job.answer.set_result(verdicts[first : first + len(job.images)])
            first += len(job.images)

    async def _gather(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._wait
        while sum(len(job.images) for job in self._jobs) < self._batch and not self._closing:
            left = end - loop.time()
            if left <= 0:
                return
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except (asyncio.TimeoutError, TimeoutError):
                return

    def _take(self) -> list[_Job]:
        """The oldest job and others whose images have its size, at most a batch of images (or one job)."""
        jobs: list[_Job] = []
        later: deque[_Job] = deque()
        count = 0
        while self._jobs and count < self._batch:
            job = self._jobs.popleft()
            if job.answer.done():  # the client has gone, or its time is up
                continue
            if jobs and (count + len(job.images) > self._batch or job.images[0].shape != jobs[0].images[0].shape):
                later.append(job)
                continue
            jobs.append(job)
            count += len(job.images)
        self._jobs.extendleft(reversed(later))
        return jobs

    def _forward(self, jobs: Sequence[_Job]) -> Verdicts:
        images = np.stack([image for job in jobs for image in job.images])
        self._observe(len(images))
        return self._detect(images)
