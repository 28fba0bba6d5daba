"""The streams of a service: folded by the one replica that leads, read by all."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from shiftprism.monitor import Monitor
from shiftprism.serving._models import Models
from shiftprism.serving._settings import Settings
from shiftprism.store import MonitorFold, Store, StoreError, Stream, monitor_from_bytes

_LOG = logging.getLogger("shiftprism.serving")
_FOLD_EVERY = 0.2
_REFRESH_EVERY = 1.0
_PRUNE_EVERY = 600.0
_LOG10_2 = float(np.log10(2))


class Streams:
    """Folds observations into monitors, where this process leads, and says what the monitors say."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._folds: dict[int, MonitorFold] = {}
        self._read: dict[int, tuple[bytes, Monitor]] = {}
        self.leads = False

    def fold(self) -> int:
        """Fold all that is stored and settled, if this process leads. How many observations."""
        self.leads = self._store.lead()
        if not self.leads:
            self._folds.clear()
            return 0
        total = 0
        for stream in self._store.streams():
            fold = self._folds.setdefault(stream.number, MonitorFold())
            while count := self._store.fold(stream, fold):
                total += count
        return total

    def prune(self) -> None:
        """Delete what is too old, if this process leads."""
        if self._settings.keep_days is not None and self.leads:
            count = self._store.prune(time.time() - 86400 * self._settings.keep_days, MonitorFold())
            _LOG.info("prune", extra={"fields": {"event": "prune", "observations": count}})

    def monitor(self, stream: Stream) -> Monitor:
        """The monitor as it is stored now. Do not change it."""
        state = self._store.state(stream)[1]
        known = self._read.get(stream.number)
        if known is None or known[0] != state:
            known = state, monitor_from_bytes(state, stream.detector)
            self._read[stream.number] = known
        return known[1]

    def describe(self, stream: Stream) -> dict[str, Any]:
        """The status as JSON: now, over time, and how often the predictions with a known truth were right."""
        monitor = self.monitor(stream)
        status = monitor.status()
        labelled, right = self._store.accuracy(stream)
        windows = [each._asdict() for each in monitor.history()]
        evidence: tuple[float, ...] = (0.0, 0.0)
        for window, heights in zip(windows, monitor.evidence_history().T.tolist(), strict=True):
            # log10, because e-values have hundreds of digits; what was not tested yet keeps the evidence before it
            evidence = tuple(
                before if height == -np.inf else height * _LOG10_2
                for before, height in zip(evidence, heights, strict=True)
            )
            window |= {"log10_e_covariate": evidence[0], "log10_e_concept": evidence[1]}
        return {
            "model": stream.model,
            "detector": stream.detector,
            "sentence": str(status),
            **status.to_dict(),
            "labelled": {"count": labelled, "right": right},
            "history": windows,
            "resets": monitor.resets,
        }


async def run_regularly(work: Callable[[], Awaitable[Any]], every: float, name: str) -> None:
    """Do something for as long as the service runs. A store that is away for a while ends nothing."""
    failing = False
    while True:
        try:
            await work()
            failing = False
        except StoreError as error:
            if not failing:  # once, not five times a second
                _LOG.error(name, extra={"fields": {"event": name, "problem": str(error)}})
            failing = True
        except Exception:
            _LOG.exception(name, extra={"fields": {"event": name}})
        await asyncio.sleep(every)


def start_tasks(streams: Streams, models: Models) -> "list[asyncio.Task[None]]":
    """Folding, new detectors, and retention, in the background."""

    async def fold() -> None:
        await asyncio.to_thread(streams.fold)

    async def prune() -> None:
        await asyncio.to_thread(streams.prune)

    jobs = ((fold, _FOLD_EVERY, "fold"), (models.refresh, _REFRESH_EVERY, "refresh"), (prune, _PRUNE_EVERY, "prune"))
    return [asyncio.ensure_future(run_regularly(work, every, name)) for work, every, name in jobs]
