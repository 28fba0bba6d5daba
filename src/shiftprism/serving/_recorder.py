"""Acknowledging: observations of requests that end together are committed together."""

import asyncio
import logging
from collections.abc import Sequence

from shiftprism.serving._problems import Problem
from shiftprism.store import Observation, Store, StoreError

_LOG = logging.getLogger("shiftprism.serving")


class Recorder:
    """One task that commits whatever has gathered while the last commit was under way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Observation], asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._task = asyncio.ensure_future(self._run())
        self.failures = 0

    async def record(self, observations: Sequence[Observation]) -> None:
        """Return when the observations are on the disk; 503 where they cannot be."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((observations, done))
        self._arrived.set()
        await done

    async def close(self) -> None:
        """Commit what waits, then end."""
        self._closing = True
        self._arrived.set()
        await self._task

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            self._arrived.clear()
            if not self._waiting:
                await self._arrived.wait()
                continue
            parts, self._waiting = self._waiting, []
            rows = [row for part, _ in parts for row in part]
            error: Problem | None = None
            try:
                await asyncio.to_thread(self._store.append, rows)
            except (
                Exception
            ) as failure:  # whatever it is: it ends these requests, and not the task that all others need
                self.failures += 1
                if not isinstance(failure, StoreError):
                    _LOG.exception("store", extra={"fields": {"event": "store"}})
                error = Problem(503, "The answer cannot be stored now; try again in a moment.", retry_after=5)
            for _, done in parts:
                if done.done():
                    continue
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)
