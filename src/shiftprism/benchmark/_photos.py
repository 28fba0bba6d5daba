"""Photographs in a user's folders: read from the disk when they are forwarded, and never all in memory.

A photograph is corrupted as it is, before the model's own rule resizes it: nothing but the model resizes.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from shiftprism._devices import compute_alone
from shiftprism._errors import wrong
from shiftprism._files import read_json
from shiftprism.benchmark._plan import Plan, parse_run
from shiftprism.classifier import Classifier, predict
from shiftprism.corruptions import CORRUPTIONS, find_corruption
from shiftprism.datasets import ImageFile, list_labelled, read_images
from shiftprism.detector import prepare_for
from shiftprism.outputs import Outputs
from shiftprism.rows import Kind, file_stem
from shiftprism.style import VERSION

TESTED = 2
"""So many fifths of the photographs are tested; the others are there to fit scores, calibrators and ranks."""
_LEAST = 20
_BATCH_BYTES = 1 << 24
"""Of a batch as floats: 27 photographs of 224 × 224. What a network keeps of a batch is some 50 times as much."""
_BATCH = 128
_PART = 512
"""So many photographs have their Outputs in memory while they are forwarded."""
_BLOCK_BYTES = 1 << 28
"""Of the photographs in memory, as they are read, that become a batch."""
Item = TypeVar("Item")


class Photographs(NamedTuple):
    """Image files with their classes, and the corruption under which they are seen; as a `Dataset`, without pixels."""

    images: tuple[Path, ...]
    labels: Tensor
    """(N,), int64: positions in `names`."""
    names: tuple[str, ...]
    """The classes of the model."""
    seeds: Tensor
    """(N,): one for each photograph, the same under every corruption."""
    corruption: str = ""
    severity: int = 0

    def rows(self, rows: Tensor) -> "Photographs":
        """Some of them, by their numbers."""
        images = tuple(self.images[row] for row in rows.tolist())
        return self._replace(images=images, labels=self.labels[rows], seeds=self.seeds[rows])

    def take_evenly(self, most: int) -> "Photographs":
        """At most so many, evenly spaced; 0 for all."""
        if not most or len(self.images) <= most:
            return self
        return self.rows(torch.linspace(0, len(self.images) - 1, most).round().long())

    def corrupt(self, name: str, severity: int) -> "Photographs":
        """The same photographs under a corruption."""
        return self._replace(corruption=name, severity=severity)


class PhotoFolder(NamedTuple):
    """The ID photographs of a plan: a folder of class folders, which the model's classes number."""

    name: str
    source: str
    run: str
    """A model of these classes."""

    def load(self, split: str) -> Photographs:
        """The "train" or the "test" part. The model has learned neither: "train" is what scores are fitted to."""
        found = list_labelled(self.source, "all")
        names = tuple(read_json(Path(self.run) / "model.json", "a saved model", "save it again").get("names", ()))
        numbers = torch.tensor(_number_classes(found.names, names, self.source))
        everything = _list_photographs(found.paths, numbers[found.labels], names)
        if len(found.paths) < _LEAST:
            got = f"{len(found.paths)} in {self.source}"
            raise wrong("data", f"{_LEAST} photographs or more", got, "a few hundred give an AUROC to a few per cent")
        tested = _deal(everything.labels, seed=0) % 5 < TESTED
        return everything.rows((tested == (split == "test")).nonzero().squeeze(1))

    def divide(self, share: float) -> tuple[Photographs, Photographs]:
        """The "train" part for scores, and about `share` of it for calibrators and ranks alone."""
        fitted = self.load("train")
        # of each hundred in turn, so that every class is spread over both
        held = _deal(fitted.labels, seed=1) * 61 % 100 < round(100 * share)
        return fitted.rows((~held).nonzero().squeeze(1)), fitted.rows(held.nonzero().squeeze(1))


class PhotoShift(NamedTuple):
    """A shifted set of photographs; as `shifts.Shift`."""

    name: str
    kind: Kind
    severity: int
    photographs: Photographs

    def make(self) -> Photographs:
        """Its photographs. Nothing is read before they are forwarded."""
        return self.photographs


def find_photographs(plan: Plan, data: str) -> PhotoFolder:
    """The ID photographs of a plan."""
    return PhotoFolder(file_stem(Path(data).name), data, parse_run(plan.runs[0])[1])


def list_photo_shifts(plan: Plan, data: str) -> list[PhotoShift]:
    """Every shift: the folders --near and --far, then each corruption of the test part at five severities."""
    test = find_photographs(plan, data).load("test")
    known = set(list_labelled(data, "all").names)
    shifts = []
    kinds: list[tuple[str, Kind]] = [(plan.near, "concept"), (plan.far, "both")]
    taken = {"clean", "train", "held-out", "corrupted", *CORRUPTIONS}
    for folder, kind in kinds:
        if folder:
            if Path(folder).name in taken:  # a row is known by it, and the file of its Outputs
                flag = "near" if kind == "concept" else "far"
                raise wrong(flag, "a folder with a name of its own", folder, "rename it")
            taken.add(Path(folder).name)
            found = list_labelled(folder, "all")
            if both := sorted(known & set(found.names)):
                flag = "near" if kind == "concept" else "far"
                raise wrong(flag, f"images of other classes than {data}", f"{both[0]} in both", "leave this class out")
            others = _list_photographs(found.paths, torch.zeros_like(found.labels), test.names)
            shifts.append(PhotoShift(Path(folder).name, kind, 0, others.take_evenly(plan.images)))
    few = test.take_evenly(plan.corrupted_images or plan.images)
    shifts += [
        PhotoShift(name, "covariate", severity, few.corrupt(name, severity))
        for name in plan.corruptions
        for severity in (1, 2, 3, 4, 5)
    ]
    return shifts


def predict_photographs(classifier: Classifier, data: Photographs, cache: Path) -> Outputs:
    """The Outputs of all photographs, in order, from the `cache` where neither they nor the model have changed.

    Threads read, corrupt and resize the next batch while the model computes. One that cannot be read is an error.
    More than 512 are forwarded in parts, whose Outputs wait on the disk: a later call resumes them.
    """
    fingerprint = _fingerprint(classifier, data)
    try:
        return Outputs.load(cache, fingerprint)[0]
    except (ValueError, OSError):  # absent, cut off, or of another model or other data: computed again
        if len(data.images) > _PART:
            _predict_parts(classifier, data, cache, fingerprint)
            return Outputs.load(cache, fingerprint)[0]
        outputs, _ = predict(classifier, _run_ahead(_make_batches(classifier, data)))
        outputs.save(cache, data.labels, fingerprint)
        return outputs


def _predict_parts(classifier: Classifier, data: Photographs, cache: Path, fingerprint: str) -> None:
    folder = cache.with_name(f"{cache.stem}.parts")
    parts = []
    for number, rows in enumerate(torch.arange(len(data.images)).split(_PART)):
        parts.append(folder / f"{number:06}.safetensors")
        predict_photographs(classifier, data.rows(rows), parts[-1])
    Outputs.join_files(parts, cache, fingerprint)
    shutil.rmtree(folder)


def check_model(classifier: Classifier, folder: str) -> None:
    """Refuse a model that has no rule for photographs of other sizes."""
    if classifier.preprocessing.resize is None:
        advice = "adapt and save it with preprocessing=Preprocessing(size=(224, 224), resize=256, channels=3), say"
        raise wrong("runs", "models with a resize rule, for photographs of any size,", f"{folder} without", advice)


def choose_batch(classifier: Classifier) -> int:
    """How many photographs go through at a time: at most 128, and 16 MB as floats."""
    rule = classifier.preprocessing
    height, width = rule.size or (224, 224)
    return max(1, min(_BATCH, _BATCH_BYTES // (4 * height * width * (rule.channels or 3))))


def _make_batches(classifier: Classifier, data: Photographs) -> Iterator[Tensor]:
    prepare = prepare_for(classifier)
    corruption = find_corruption(data.corruption) if data.corruption else None
    threads = max(1, torch.get_num_threads())

    def finish(file: ImageFile, seed: int) -> Tensor:
        if file.image is None:
            raise wrong("data", "photographs that can be read", f"{file.path} ({file.problem})", "remove it")
        image = file.image
        if corruption is not None:
            image = corruption(image[None], data.severity, torch.tensor([seed]))[0]
        image = prepare(image)
        return image.float() / 255 if image.dtype == torch.uint8 else image

    seeds = iter(data.seeds.tolist())
    with ThreadPoolExecutor(threads, initializer=compute_alone) as pool:
        for block in _gather(read_images(data.images, threads=threads), choose_batch(classifier)):
            yield torch.stack(list(pool.map(finish, block, [next(seeds) for _ in block])))


def _gather(files: Iterable[ImageFile], most: int) -> Iterator[list[ImageFile]]:
    """Blocks of at most so many files, and of a quarter of a gigabyte."""
    block: list[ImageFile] = []
    size = 0
    for file in files:
        block.append(file)
        size += 0 if file.image is None else file.image.nbytes
        if len(block) == most or size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _run_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; while one is used, a thread makes the next."""
    with ThreadPoolExecutor(1) as pool:
        ready = pool.submit(next, items, None)
        while (item := ready.result()) is not None:
            ready = pool.submit(next, items, None)
            yield item


def _deal(labels: Tensor, seed: int) -> Tensor:
    """(N,): the place of each image in a random order in which those of a class follow each other."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    places = torch.empty_like(shuffled)
    places[shuffled[labels[shuffled].argsort(stable=True)]] = torch.arange(len(labels))
    return places


def _list_photographs(paths: list[Path], labels: Tensor, names: tuple[str, ...]) -> Photographs:
    return Photographs(tuple(paths), labels, names, torch.arange(len(paths)))


def _number_classes(folders: tuple[str, ...], names: tuple[str, ...], source: str) -> list[int]:
    """The number of each class folder among the model's classes; "007" is the class "7" of a model without names."""
    numbers = {name: number for number, name in enumerate(names)}
    without_names = names == tuple(map(str, range(len(names))))
    found = [numbers.get(str(int(one)) if without_names and one.isdecimal() else one, -1) for one in folders]
    if -1 in found:
        unknown = folders[found.index(-1)]
        got = f"{source} with {unknown}"
        advice = "name each folder like a class of the model, or by its number where the model has no names"
        raise wrong("data", f"a folder of the model's {len(names)} classes", got, advice)
    return found


def _fingerprint(classifier: Classifier, data: Photographs) -> str:
    """Of the model, the files (by name, size and time), and what is done to them."""
    digest = hashlib.sha256(f"{classifier.fingerprint()} {VERSION} {data.corruption} {data.severity}".encode())
    for path, seed in zip(data.images, data.seeds.tolist(), strict=True):
        stat = path.stat()
        digest.update(f"\n{path} {stat.st_size} {stat.st_mtime_ns} {seed}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
