"""A detector fitted on a Ray cluster: workers forward image files and their shifted copies, the caller fits.

A part is what one worker forwards at a time. Its Outputs come back to the caller, which keeps them in a folder: a later
call resumes, and nothing but file names is in memory before the fit.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftprism._checks import classes, wrong
from shiftprism._extras import need
from shiftprism._files import read_json, write_json
from shiftprism._tasks import check_shared_disk, connect, run_tasks, use_threads
from shiftprism.classifier import Classifier, predict
from shiftprism.datasets import read_images
from shiftprism.detector._detector import Detector
from shiftprism.detector._fit import BATCH, COPIES, Copies, Counter, Progress, check_count, divide, plan_copies
from shiftprism.detector._images import prepare_for, stack_images
from shiftprism.outputs import Outputs
from shiftprism.shifts import make_shifted_copies
from shiftprism.style import VERSION

_FILES = 256
"""Files of a part: seconds to minutes of one worker, which is what a lost worker costs."""


class FittedFiles(NamedTuple):
    """A detector, and the files that it was fitted to."""

    detector: Detector
    paths: list[Path]
    """Those that could be read, in order."""
    problems: list[str]
    """The others, each with the reason."""


def fit_on_cluster(
    classifier: Classifier,
    paths: "Sequence[str | Path]",
    labels: ArrayLike | None = None,
    *,
    folder: "str | Path",
    cluster: str = "local",
    model: str | None = None,
    false_alarm: float = 0.05,
    confidence: float | None = None,
    by_class: bool = False,
    concept: str | None = None,
    copies: int = COPIES,
    seed: int = 0,
    progress: Progress | None = None,
) -> FittedFiles:
    """The detector that `Detector.fit` makes of the images in these files, forwarded by the workers of a Ray cluster.

    `cluster` is the address of a running one, or "local" for one on the cores of this machine. Every worker reads the
    files under the same names: they are on a shared disk. The model goes to each worker once, as the files that
    `classifier.save` writes; `model` names the code of an adapted one, "package.module:function", which workers import.

    Outputs of finished parts are kept in `folder`, where a later call finds them; it is removed at the end. A file that
    cannot be read is left out, and named. Copies that change nothing are left out one by one, as `Detector.fit` does
    for images of different sizes.
    """
    if not paths:
        raise wrong("paths", "files of images", "none", "name at least one")
    check_count(len(paths), false_alarm, confidence)
    files = [Path(path).absolute() for path in paths]
    given = None if labels is None else torch.from_numpy(classes("labels", labels, len(files), len(classifier.names)))
    counter = Counter([(len(files), 2 * len(files) // 5)], copies, progress)
    with connect(cluster) as ray, tempfile.TemporaryDirectory() as place:
        run = _Run(Path(folder), cluster, _share_model(ray, classifier, model, Path(place)), counter)
        numbers = torch.arange(len(files))
        parts = [_Part(tuple(files[n] for n in some.tolist()), tuple(some.tolist())) for some in numbers.split(_FILES)]
        done = run.forward(parts)
        outputs, rows = _join(done, run.folder / "images.safetensors")
        known = None if given is None else given[rows]
        divided = divide(outputs.N, known, false_alarm, confidence, seed)
        # a copy has the seed of its image among those of the fit part, as in `Detector.fit`
        fitting = [files[n] for n in rows[divided.fit].tolist()]
        parts = [
            _Part(tuple(fitting[n] for n in some.tolist()), tuple(some.tolist()), name, severity)
            for name, severity, chosen in plan_copies(len(fitting), copies, seed)
            for some in chosen.split(_FILES)
        ]
        shifted = _gather_copies(run.forward(parts), divided.fit)
    fitted = Detector.from_outputs(
        outputs,
        known,
        shifted=shifted,
        head=classifier.head,
        names=classifier.names,
        false_alarm=false_alarm,
        confidence=confidence,
        by_class=by_class,
        concept=concept,
        seed=seed,
    )
    shutil.rmtree(folder)
    problems = [problem for part in done for problem in part.problems]
    return FittedFiles(fitted.attach(classifier), [files[n] for n in rows.tolist()], problems)


class _Part(NamedTuple):
    """Files, or copies of them under one corruption."""

    paths: tuple[Path, ...]
    numbers: tuple[int, ...]
    """Of each file its row, which is also the seed of its copy."""
    corruption: str = ""
    severity: int = 0


class _Done(NamedTuple):
    """A part that was forwarded."""

    part: _Part
    file: Path
    """Its Outputs, with the numbers of the files as labels; absent where there are none."""
    problems: list[str]


class _Model(NamedTuple):
    """The files of a saved classifier, in the cluster's memory."""

    digest: str
    reference: Any
    code: str | None


class _Run(NamedTuple):
    """Where parts are forwarded, and where their Outputs are kept."""

    folder: Path
    cluster: str
    model: _Model
    counter: Counter

    def forward(self, parts: Sequence[_Part]) -> list[_Done]:
        """All parts in order: those in the folder are read, and the others are forwarded."""
        keys = [_key(self.model, part) for part in parts]
        missing = [number for number, key in enumerate(keys) if not (self.folder / f"{key}.json").exists()]
        self.counter.add(sum(len(part.paths) for part in parts) - sum(len(parts[n].paths) for n in missing))
        failed = []
        work = partial(_forward_part, self.model)
        for task in run_tasks(work, [parts[number] for number in missing], cluster=self.cluster, device="cpu"):
            number = missing[task.number]
            if task.error:
                failed.append(f"{parts[number].paths[0]}: {task.error}")
                continue
            arrays, numbers, problems = task.result
            if problems and parts[number].corruption:  # its file was read before, so another time it may be again
                failed.append(f"{problems[0]}; it was readable when the fit began")
                continue
            if numbers:
                outputs = Outputs(*map(torch.tensor, arrays))  # copies: what Ray returns is read-only
                outputs.save(self.folder / f"{keys[number]}.safetensors", torch.tensor(numbers), keys[number])
            # the last to be written: with it the part is finished
            write_json(self.folder / f"{keys[number]}.json", {"problems": problems})
            self.counter.add(len(parts[number].paths))
        if failed:
            what = f"{len(failed)} of {len(parts)} parts failed ({failed[0]})"
            raise OSError(f"{what}; the others are kept in {self.folder}, and the same call tries these again")
        return [self._read(part, key) for part, key in zip(parts, keys, strict=True)]

    def _read(self, part: _Part, key: str) -> _Done:
        about = read_json(self.folder / f"{key}.json", "a finished part", f"remove {self.folder}")
        return _Done(part, self.folder / f"{key}.safetensors", list(about.get("problems", [])))


def _share_model(ray: Any, classifier: Classifier, code: str | None, place: Path) -> _Model:
    classifier.save(place)
    content = {path.name: path.read_bytes() for path in place.iterdir()}
    return _Model(f"{classifier.fingerprint()} {VERSION}", ray.put(content), code)


def _key(model: _Model, part: _Part) -> str:
    """Of the model, the files (by name, size and time), and what is done to them."""
    digest = hashlib.sha256(f"{model.digest} {part.corruption} {part.severity}".encode())
    for path, number in zip(part.paths, part.numbers, strict=True):
        try:
            found = path.stat()
            state = f"{found.st_size} {found.st_mtime_ns}"
        except OSError:  # the worker says why
            state = ""
        digest.update(f"\n{path} {state} {number}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


_OPENED: dict[tuple[str, str | None], Classifier] = {}
"""Of this worker: the model is loaded once, and not for each part."""


def _open_model(model: _Model) -> Classifier:
    key = (model.digest, model.code)
    if key not in _OPENED:
        ray = need("ray", "cluster")
        with tempfile.TemporaryDirectory() as place:
            for name, content in ray.get(model.reference).items():
                Path(place, name).write_bytes(content)
            classifier = Classifier.load(place, model=model.code)
        _OPENED.clear()
        _OPENED[key] = classifier
    return _OPENED[key]


def _forward_part(
    model: _Model, part: _Part, threads: int, device: str
) -> tuple[list[NDArray[Any]], list[int], list[str]]:
    """In a worker: the fields of the Outputs, the numbers of the files they are of, and the files without."""
    check_shared_disk(part.paths)
    numbers: list[int] = []
    problems: list[str] = []

    def read(prepare: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        for number, file in zip(part.numbers, read_images(part.paths, threads=threads), strict=True):
            if file.image is None:
                problems.append(f"{file.path}: {file.problem}")
                continue
            try:
                images = [prepare(image) for image in _copy(file.image, part, number)]
            except ValueError as error:  # of a size that the model does not take
                problems.append(f"{file.path}: {error}")
                continue
            numbers.extend([number] * len(images))
            yield from images

    with use_threads(threads):
        classifier = _open_model(model)
        images = read(prepare_for(classifier))
        batches = iter(lambda: list(islice(images, BATCH)), [])  # photographs are never all in memory
        if not (first := next(batches, [])):
            return [], [], problems
        outputs, _ = predict(classifier, map(stack_images, chain([first], batches)))
    return [field.numpy() for field in outputs], numbers, problems


def _copy(image: Tensor, part: _Part, seed: int) -> Iterator[Tensor]:
    """The image, or its copy; nothing where the corruption does not change it."""
    if not part.corruption:
        yield image
        return
    copies = make_shifted_copies(image[None], [part.corruption], [part.severity], seeds=torch.tensor([seed]))
    yield from (copy.images[0] for copy in copies)


def _join(done: Sequence[_Done], path: Path) -> tuple[Outputs, Tensor]:
    """The Outputs of all parts, which stay in one file, and the numbers of their files."""
    found = [one.file for one in done if one.file.exists()]
    if not found:
        reasons = [problem for one in done for problem in one.problems]
        raise wrong("paths", "images that can be read", reasons[0], "name others")
    Outputs.join_files(found, path)
    outputs, rows = Outputs.load(path, mapped=True)
    assert rows is not None, "written with the Outputs"
    return outputs, rows


def _gather_copies(done: Sequence[_Done], fit: Tensor) -> dict[str, Copies]:
    """The copies by the name of the corruption, with their rows among all images."""
    found: dict[str, list[Copies]] = {}
    for one in done:
        if one.file.exists():
            outputs, numbers = Outputs.load(one.file)
            assert numbers is not None, "written with the Outputs"
            copies = Copies(outputs, fit[numbers], torch.full((outputs.N,), one.part.severity))
            found.setdefault(one.part.corruption, []).append(copies)
    return {name: Copies.join(parts) for name, parts in found.items()}
