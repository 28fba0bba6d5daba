"""The detectors that a service answers with. A file that is replaced is loaded while the old detector still answers."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from shiftprism._errors import wrong
from shiftprism._extras import need
from shiftprism.monitor import Monitor
from shiftprism.serving._batching import Batcher
from shiftprism.serving._decoding import Pixels
from shiftprism.serving._problems import Problem
from shiftprism.serving._settings import Settings
from shiftprism.store import Store, Stream, monitor_from_bytes, monitor_to_bytes
from shiftprism.verdicts import Reference, Verdicts

_LOG = logging.getLogger("shiftprism.serving")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Detector(Protocol):
    """What a service needs of a detector; `shiftprism.runtime.load` returns one."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def reference(self) -> Reference: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def size(self) -> "tuple[int, int | None, int | None]":
        """Channels, height and width; None where any height or width is taken."""

    def __call__(self, images: Pixels) -> Verdicts: ...


Load = Callable[[Path], Detector]
Stamp = tuple[int, int, int]


class Shape(NamedTuple):
    """The images that a detector takes."""

    channels: int
    height: int | None
    width: int | None

    def check(self, height: int, width: int) -> None:
        """422 for an image of another size: nothing but the model resizes."""
        if (self.height not in (None, height)) or (self.width not in (None, width)):
            want = f"{self.width or 'any'} × {self.height or 'any'}"
            raise Problem(422, f"The model takes images of {want} pixels, and this one has {width} × {height}.")


class Loaded(NamedTuple):
    """A detector with its stream in the store."""

    stamp: Stamp | None
    detector: Detector
    stream: Stream


@dataclass
class Model:
    """One detector under its name, with the queue before it."""

    name: str
    detector: Detector
    stream: Stream
    shape: Shape
    batcher: Batcher
    problem: str = ""
    """Why the newest file could not be loaded; the detector is the one before it."""


@dataclass
class Models:
    """Detectors by name; the first is the default."""

    files: Mapping[str, Path]
    load: Load
    store: Store
    settings: Settings
    observe: Callable[[str, int], None] = lambda name, size: None
    _models: dict[str, Model] = field(default_factory=dict)
    _loaded: dict[str, Loaded] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.files:
            raise wrong("models", "at least one", "none", "name a model.onnx")
        for name in self.files:
            if _NAME.fullmatch(name) is None:
                raise wrong("name", "letters, digits, dots, dashes and underscores", repr(name), "choose another")

    def __iter__(self) -> Iterator[Model]:
        return iter([self._models[name] for name in self.files if name in self._models])

    def find(self, name: str | None) -> Model:
        """The model of a name, or the default; 404 where there is none."""
        model = self._models.get(name if name is not None else next(iter(self.files)))
        if model is None:
            raise Problem(404, "There is no model of this name.")
        return model

    def load_all(self) -> None:
        """Load every detector; one that cannot be loaded is an error."""
        for name, path in self.files.items():
            self._loaded[name] = self._load(name, path)

    def start(self) -> None:
        """Begin to take images. In the event loop."""
        for name, loaded in self._loaded.items():
            self._models[name] = self._queue(name, loaded)

    async def refresh(self) -> None:
        """Load the detectors whose files have changed since the last call, and let them answer from now on."""
        for name, path in self.files.items():
            stamp = _stamp(path)
            if stamp is None or stamp == self._loaded[name].stamp:
                continue
            old = self._models[name]
            try:
                new = await asyncio.to_thread(self._load, name, path)
            except Exception as error:
                if _stamp(path) == stamp:  # else it is still being written
                    self._loaded[name] = self._loaded[name]._replace(stamp=stamp)
                    old.problem = "the newest file cannot be loaded"
                    _LOG.error("model", extra={"fields": {"event": "model", "model": name, "problem": str(error)}})
                continue
            if _stamp(path) == stamp:
                self._loaded[name] = new
                self._models[name] = self._queue(name, new)
                _LOG.info("model", extra={"fields": {"event": "model", "model": name, "detector": new.stream.detector}})
                await old.batcher.close()  # what it has accepted, it answers

    async def close(self) -> None:
        """Answer what waits, then end."""
        for model in self._models.values():
            await model.batcher.close()

    def _queue(self, name: str, loaded: Loaded) -> Model:
        batcher = Batcher(
            loaded.detector,
            batch=self.settings.batch,
            wait=self.settings.wait,
            observe=lambda size: self.observe(name, size),
        )
        return Model(name, loaded.detector, loaded.stream, Shape(*loaded.detector.size), batcher)

    def _load(self, name: str, path: Path) -> Loaded:
        """The detector, after one image has gone through it: a file that loads may still fail to run."""
        stamp = _stamp(path)
        detector = self.load(path)
        channels, height, width = detector.size
        detector(np.zeros((1, channels, height or 224, width or 224), np.uint8))
        reference = detector.reference
        state = monitor_to_bytes(Monitor(reference, self.settings.false_alarm))
        fingerprint, calibrated = detector.fingerprint, reference.calibrated
        stream = self.store.open_stream(name, fingerprint, detector.names, calibrated=calibrated, state=state)
        began = monitor_from_bytes(self.store.state(stream)[1]).settings.false_alarm
        if began != self.settings.false_alarm:
            expected = f"{began:g}, with which the monitor of {name} began in this store"
            raise wrong("false_alarm", expected, f"{self.settings.false_alarm:g}", "another level needs another store")
        return Loaded(stamp, detector, stream)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def load_model(path: Path) -> Detector:
    """The detector in an ONNX file, with onnxruntime."""
    need("onnxruntime", "serve")
    runtime: Any = import_module("shiftprism.runtime")
    loaded: Detector = runtime.load(path)
    return loaded
