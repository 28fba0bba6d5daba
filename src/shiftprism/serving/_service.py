"""A service without HTTP: images in, acknowledged predictions out; labels, statuses, life and death."""

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftprism._errors import wrong
from shiftprism.serving._batching import QueueClosed
from shiftprism.serving._decoding import Decoders, Pixels, Request
from shiftprism.serving._memory import Lease, Memory
from shiftprism.serving._metrics import Metrics
from shiftprism.serving._models import Load, Model, Models
from shiftprism.serving._problems import Problem, overloaded
from shiftprism.serving._recorder import Recorder
from shiftprism.serving._settings import Settings
from shiftprism.serving._streams import Streams, start_tasks
from shiftprism.serving._tokens import VARIABLE, Tokens
from shiftprism.store import NO_CLASS, Store, StoreError, Stream, make_observations, open_store
from shiftprism.verdicts import Verdicts

_MOST_LABELS = 10_000
_LOG = logging.getLogger("shiftprism.serving")


class Service:
    """Everything that requests share. `start` and `stop` belong to one event loop."""

    def __init__(self, files: Mapping[str, Path], settings: Settings, load: Load, store: Store | None = None) -> None:
        self.settings = settings
        self.tokens = Tokens(Path(settings.tokens) if settings.tokens else None)
        if not settings.is_loopback and not self.tokens.required:
            advice = f"give a token file, or {VARIABLE} in the environment"
            raise wrong("host", "a loopback address where there are no tokens", settings.host, advice)
        self.metrics = Metrics()
        self.memory = Memory(settings.memory_bytes)
        self.store = open_store(settings.store) if store is None else store
        self.models = Models(files, load, self.store, settings, self._observe_batch)
        try:
            self.models.load_all()
        except BaseException:
            self.store.close()
            raise
        self.streams = Streams(self.store, settings)
        # a third: an image on which a decoder hangs is refused as such, before the whole request has taken too long
        self.decoders = Decoders(settings.decoders or min(os.cpu_count() or 1, 4), settings.time_limit / 3)
        self.recorder: Recorder | None = None
        self.waiting = 0
        """Images that were accepted and are not answered yet."""
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Start what runs in the background."""
        try:
            self.models.start()
            await self.decoders.start()
            self.recorder = Recorder(self.store)
            self._tasks = start_tasks(self.streams, self.models)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Answer and store what was accepted, fold it, and give everything back."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.models.close()
        if self.recorder is not None:
            await self.recorder.close()
        await self.decoders.close()
        try:
            await asyncio.to_thread(self.streams.fold)
        except StoreError:  # what is stored is folded by the next process
            pass
        finally:
            await asyncio.to_thread(self.store.close)

    async def predict(self, name: str | None, images: Sequence[bytes], request: str, lease: Lease) -> dict[str, Any]:
        """Decode, decide, store; then answer."""
        if self._stopping or self.waiting + len(images) > self.settings.max_queue:
            raise overloaded("The service stops" if self._stopping else "Too many images are waiting")
        self.waiting += len(images)
        try:
            work = self._predict(name, images, request, lease)
            return await asyncio.wait_for(work, self.settings.time_limit)
        except asyncio.TimeoutError:
            raise overloaded("The answer took too long") from None
        finally:
            self.waiting -= len(images)

    async def _predict(self, name: str | None, images: Sequence[bytes], request: str, lease: Lease) -> dict[str, Any]:
        model = self.models.find(name)
        decoded = await self._decode(model, images, lease)
        problems = [each for each in decoded if isinstance(each, Problem)]
        self.metrics.unusable.inc(len(problems))
        busy = [problem for problem in problems if problem.status == 503]
        if busy or len(problems) == len(images):
            raise busy[0] if busy else problems[0]
        places = [place for place, each in enumerate(decoded) if not isinstance(each, Problem)]
        pixels = [each for each in decoded if not isinstance(each, Problem)]
        model, verdicts = await self._detect(model, pixels)
        ids = [str(uuid.uuid4()) for _ in places]
        pictures = [images[place] for place in places] if self.settings.keep_images else None
        assert self.recorder is not None
        rows = make_observations(verdicts, ids, model.stream.number, request, time.time(), pictures)
        await self.recorder.record(rows)
        self.metrics.count_verdicts(model.name, verdicts)
        answers: list[dict[str, Any]] = [
            {"id": None, "error": each.to_dict()} if isinstance(each, Problem) else {} for each in decoded
        ]
        for place, id_, row, verdict in zip(places, ids, verdicts.to_dicts(), verdicts, strict=True):
            answers[place] = {"id": id_, **row, "sentence": str(verdict)}
        return {
            "request": request,
            "model": model.name,
            "detector": model.stream.detector,
            "predictions": answers,
        }

    async def _decode(self, model: Model, images: Sequence[bytes], lease: Lease) -> "list[Pixels | Problem]":
        def accept(height: int, width: int) -> None:
            model.shape.check(height, width)
            lease.take(height * width * model.shape.channels)

        wanted = Request(model.shape.channels == 1, self.settings.max_pixels, accept)
        return await self.decoders.decode(images, wanted)

    async def _detect(self, model: Model, pixels: Sequence[Pixels]) -> tuple[Model, Verdicts]:
        """The verdicts of images of any sizes; images of one size go together."""
        shapes: dict[tuple[int, ...], list[int]] = {}
        for place, image in enumerate(pixels):
            shapes.setdefault(image.shape, []).append(place)
        groups = list(shapes.values())
        while True:
            try:
                tasks = [model.batcher.detect([pixels[place] for place in group]) for group in groups]
                parts = await asyncio.gather(*tasks)
                break
            except QueueClosed:  # the detector was replaced a moment ago
                before, model = model, self.models.find(model.name)
                if model is before or model.shape != before.shape:
                    raise overloaded("The model has just been replaced") from None
            except ValueError as error:  # what a detector refuses: images too long and narrow for its resize, say
                fields = {"event": "refused", "model": model.name, "problem": str(error)}
                _LOG.info("refused", extra={"fields": fields})
                raise Problem(422, "The model cannot take an image of these proportions.") from None
        order = [place for group in groups for place in group]
        inverse = sorted(range(len(order)), key=order.__getitem__)
        return model, Verdicts.concat(parts)[inverse]

    async def label(self, name: str | None, value: Any) -> dict[str, Any]:
        """Store late truth."""
        model = self.models.find(name)
        truths = _read_truths(value)
        places = await asyncio.to_thread(self.store.locate, list(truths))
        numbers = {
            id_: _find_class(truths[id_], stream) for id_, stream in places.items() if stream.model == model.name
        }
        if not numbers:
            raise Problem(404, "None of these observations is known.")
        await asyncio.to_thread(self.store.label, numbers)
        return {"stored": len(numbers), "unknown": [id_ for id_ in truths if id_ not in numbers]}

    async def status(self, name: str | None) -> dict[str, Any]:
        """What the monitor says."""
        return await asyncio.to_thread(self.streams.describe, self.models.find(name).stream)

    def describe(self, name: str | None) -> dict[str, Any]:
        """A detector, with the points of its picture."""
        model = self.models.find(name)
        reference = model.detector.reference
        return {
            "name": model.name,
            "detector": model.stream.detector,
            "names": list(model.detector.names),
            **model.shape._asdict(),
            "calibrated": reference.calibrated,
            "usual_flagged": reference.flagged,
            "problem": model.problem,
            "points": reference.points.tolist(),
        }

    async def readiness(self) -> list[str]:
        """Why requests cannot be answered; empty where they can."""
        if self._stopping:
            return ["stopping"]
        reasons = [f"model {name}" for name in self.models.files if name not in {each.name for each in self.models}]
        try:
            await asyncio.wait_for(asyncio.to_thread(self.store.check), 5)
        except (StoreError, asyncio.TimeoutError):
            reasons.append("store")
        return reasons

    async def measure(self) -> bytes:
        """Numbers for Prometheus."""
        for model in self.models:
            try:
                self.metrics.show_status(await asyncio.to_thread(self.streams.describe, model.stream))
            except StoreError:  # the other numbers matter most just then
                continue
        self.metrics.queue.set(self.waiting)
        self.metrics.memory.set(self.memory.used)
        self.metrics.restarts.set(self.decoders.restarts)
        self.metrics.leads.set(self.streams.leads)
        self.metrics.store_failures.set(self.recorder.failures if self.recorder is not None else 0)
        return self.metrics.to_bytes()

    def _observe_batch(self, name: str, size: int) -> None:
        self.metrics.batches.labels(name).observe(size)


def _read_truths(value: Any) -> dict[str, Any]:
    """{"labels": [{"id": …, "label": …}, …]} by canonical ids."""
    labels = value.get("labels") if isinstance(value, dict) else None
    if not isinstance(labels, list) or not labels or len(labels) > _MOST_LABELS or len(value) > 1:
        raise Problem(422, f'The body must be {{"labels": [{{"id": …, "label": …}}, …]}}, 1 to {_MOST_LABELS} of them.')
    truths = {}
    for each in labels:
        if not isinstance(each, dict) or set(each) != {"id", "label"} or not isinstance(each["id"], str):
            raise Problem(422, "Each label must have an id and a label.")
        try:
            truths[str(uuid.UUID(each["id"]))] = each["label"]
        except ValueError:
            raise Problem(422, "An id is not a UUID.") from None
    return truths


def _find_class(label: Any, stream: Stream) -> int:
    """The number of a class by its number or name; null is none of them."""
    if label is None:
        return NO_CLASS
    if isinstance(label, str) and label in stream.names:
        return stream.names.index(label)
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(stream.names):
        return label
    raise Problem(422, f"A label must be a class name, a number from 0 to {len(stream.names) - 1}, or null.")
