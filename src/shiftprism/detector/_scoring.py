"""Verdicts on image files: decoded by threads while the model computes, in memory that does not grow."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._devices import count_cores
from shiftprism.datasets import EncodedImage, ImageFile, read_images
from shiftprism.detector._detector import Detector
from shiftprism.detector._images import prepare_for, stack_images
from shiftprism.verdicts import Verdict, Verdicts

Judge = Callable[[Tensor], Verdicts]
_BATCH = 128
_WAITING = 2
"""Batches that may wait for the model."""
_MOST_BYTES = 1 << 28
"""Of the images of a batch."""


class FileVerdict(NamedTuple):
    """What was decided about an image file, or why nothing was."""

    path: Path
    verdict: Verdict | None
    label: int
    """The number of the predicted class; −1 where there is no verdict."""
    problem: str
    """Why there is no verdict, in one line; empty where there is one."""


def score_files(
    detector: "Detector | Judge",
    paths: "Iterable[str | Path | EncodedImage]",
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch: int = _BATCH,
    threads: int | None = None,
) -> Iterator[FileVerdict]:
    """A verdict on each file, in order; a file that cannot be judged has its reason and ends nothing.

    Threads decode the next images while the model computes. A few batches are in memory at a time, however many files
    there are. `paths` and `threads` are those of `datasets.read_images`, but one core is left to the model. In place of
    a Detector, any function of images (N, C, H, W) that returns Verdicts does; `prepare` then turns one uint8 image
    (C, H, W) of any size into what it takes.

    >>> from shiftprism.classifier import Classifier
    >>> from shiftprism.datasets import load
    >>> data = load("digits", "train")
    >>> classifier = Classifier.build("digits", "vanilla", data.names, 1)
    >>> detector = Detector.fit(classifier, data.images[:100], concept="msp", copies=4)
    >>> [file.problem for file in score_files(detector, ["nothing.png"])]
    ['No such file or directory']
    """
    if batch < 1:
        raise wrong("batch", "1 or more", batch, "leave it out for the usual number")
    if isinstance(detector, Detector):
        if detector.classifier is None:
            advice = "fit a detector to a classifier and images"
            raise wrong("detector", "one with a classifier", "one that was made from Outputs", advice)
        prepare = prepare or prepare_for(detector.classifier)
    # the model needs a core, too; on two cores a second thread would only take the interpreter's lock from the first
    return _score(detector, read_images(paths, prepare, threads or max(1, count_cores() - 1)), batch)


def _score(judge: Judge, read: Iterator[ImageFile], batch: int) -> Iterator[FileVerdict]:
    for files in _read_batches(read, batch):
        verdicts: dict[int, tuple[Verdict, int]] = {}
        problems = {number: file.problem for number, file in enumerate(files)}
        for places in _group(files):
            images = [file.image for file in (files[place] for place in places) if file.image is not None]
            for place, found in zip(places, _judge_group(judge, images), strict=True):
                if isinstance(found, str):
                    problems[place] = found
                else:
                    verdicts[place] = found
        for number, file in enumerate(files):
            verdict, label = verdicts.get(number, (None, -1))
            yield FileVerdict(file.path, verdict, label, problems[number])


def _group(files: Sequence[ImageFile]) -> Iterator[list[int]]:
    """The places of images of one shape: a model without a resize rule may take several."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, file in enumerate(files):
        if file.image is not None:
            groups.setdefault(tuple(file.image.shape), []).append(number)
    yield from groups.values()


def _judge_group(judge: Judge, images: list[Tensor]) -> "list[tuple[Verdict, int] | str]":
    """A verdict for each image, or the reason of the model why there is none."""
    try:
        verdicts = judge(stack_images(images))
    except (ValueError, RuntimeError) as error:
        if len(images) == 1:
            return [" ".join(str(error).split()) or type(error).__name__]
        # one of them is the cause: each is judged alone
        return [found for image in images for found in _judge_group(judge, [image])]
    return [(verdict, int(label)) for verdict, label in zip(verdicts, verdicts.label, strict=True)]


def _read_batches(read: Iterator[ImageFile], batch: int) -> Iterator[list[ImageFile]]:
    """Batches of files, read by a thread of their own: it goes on while the caller uses one.

    A batch ends early where its images take a quarter of a gigabyte: an exported file takes photographs as they are.
    """
    ready: queue.Queue[Any] = queue.Queue(_WAITING)
    stopped = threading.Event()

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def fill() -> None:
        try:
            block: list[ImageFile] = []
            size = 0
            for file in read:
                block.append(file)
                size += 0 if file.image is None else file.image.nbytes
                if len(block) == batch or size >= _MOST_BYTES:
                    if not put(block):
                        return
                    block, size = [], 0
            put(block)
            put(None)
        except BaseException as error:  # the caller raises it
            put(error)
        finally:
            read.close()  # type: ignore[attr-defined]  # a generator

    reader = threading.Thread(target=fill, name="shiftprism-read", daemon=True)
    reader.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            if item:
                yield item
    finally:
        stopped.set()
        reader.join()
