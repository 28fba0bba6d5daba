"""The data a model is trained on and the shifts it meets; made once and kept in the folder of results."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from shiftprism._checks import Floats, wrong
from shiftprism._files import write_tensors
from shiftprism.benchmark._photos import PhotoFolder, PhotoShift, find_photographs, list_photo_shifts
from shiftprism.benchmark._plan import Plan
from shiftprism.corruptions import CORRUPTIONS
from shiftprism.datasets import Dataset, load
from shiftprism.rows import ResultsFolder, file_stem, set_file
from shiftprism.shifts import Shift, Vectors, concept, concept_splits, covariate, hold_out, suite
from shiftprism.training import split_held_out

UNSEEN_DIGITS = ("7", "8", "9")
_STEPS = 5
"""The most steps of a ladder of unseen classes."""


class InDistribution(NamedTuple):
    """The ID data: what `load` and `training.run` take, and its name in a row."""

    name: str
    source: str
    root: Path | None

    def load(self, split: str) -> Dataset:
        """The "train" or "test" images of the classes a model learns."""
        return load(self.source, split, self.root)

    def divide(self, share: float) -> tuple[Dataset, Dataset]:
        """The training images of a run, and those it holds out."""
        return split_held_out(self.source, share, self.root)


def in_distribution(plan: Plan, data: str, folder: ResultsFolder) -> "InDistribution | PhotoFolder":
    """The ID data of a plan. Where classes are held out, the others are written to the folder of results first."""
    if plan.suite == "photos":
        return find_photographs(plan, data)
    if plan.suite == "paper":
        return InDistribution(data, data, Path(plan.root) if plan.root else None)
    (file,) = list_data_files(plan, folder)
    if not file.exists():
        unseen = _unseen_names(plan, data)
        train, test = (_load_all_classes(plan, data, split) for split in ("train", "test"))
        if unseen:
            train, test = hold_out(train, unseen)[0], hold_out(test, unseen)[0]
        tensors = {"train_images": train.images, "train_labels": train.labels}
        tensors |= {"test_images": test.images, "test_labels": test.labels}
        write_tensors(file, tensors, {"names": json.dumps(train.names)})
    return InDistribution(file.stem, str(file.relative_to(folder.path)), folder.path)


def list_data_files(plan: Plan, folder: ResultsFolder) -> list[Path]:
    """Where the classes that a model learns are written to; none for a suite that holds no classes out."""
    return [] if plan.suite in ("paper", "photos") else [folder.data(Path(data).name) for data in plan.data_sets]


def list_shifts(plan: Plan, data: str, folder: ResultsFolder) -> "Sequence[Shift | PhotoShift]":
    """Every shift of the plan. A shift's images are made when first asked for, and read from the folder afterwards.

    Shifted photographs are not kept: they are made again for each model.
    """
    inside = in_distribution(plan, data, folder)
    if isinstance(inside, PhotoFolder):
        return list_photo_shifts(plan, data)
    test = inside.load("test")
    corrupted = covariate(take_evenly(test, plan.corrupted_images or plan.images), plan.corruptions)
    shifts = [*_concept_and_far(plan, data, inside, test), *corrupted]
    return [
        shift._replace(make=partial(_load_or_make, folder.shifted(inside.name), shift, plan.images)) for shift in shifts
    ]


def take_evenly(data: Dataset, most: int) -> Dataset:
    """At most so many images, evenly spaced, because some sets are sorted by class; 0 for all."""
    if not most or len(data.images) <= most:
        return data
    return data.rows(torch.linspace(0, len(data.images) - 1, most).round().long())


def _load_or_make(folder: Path, shift: Shift, most: int) -> Dataset:
    path = folder / set_file(shift.name, shift.severity)
    if not path.exists():  # two processes may both make it: the bytes are the same, and each writes a whole file
        data = take_evenly(shift.make(), most)
        tensors = {"images": data.images, "labels": data.labels}
        write_tensors(path, tensors, {"names": json.dumps(data.names)})
    return load(str(path.resolve()), "all")


def _concept_and_far(plan: Plan, data: str, inside: InDistribution, test: Dataset) -> Iterator[Shift]:
    """The shifts beside the corruptions: unseen classes, far images, and a ladder of unseen classes."""
    if plan.suite == "paper":
        yield from suite("near-far", test, root=inside.root)
        for step in suite("concept-splits", test, root=inside.root):
            yield step._replace(name="concept-splits")
        return
    names = _unseen_names(plan, data)
    near: dict[str, Dataset] = {}
    if names:
        unseen = hold_out(_load_all_classes(plan, data, "all"), names)[1]
        near["unseen digits" if plan.suite == "digits" else "unseen classes"] = unseen
    far = {"photographs": photographs()} if plan.suite == "digits" else _load_far(plan)
    if near or far:
        yield from suite("near-far", test, near=near, far=far)
    if len(names) > 1:
        yield from concept(unseen, split_by_mean_image(test, unseen), "concept-splits")


def _load_far(plan: Plan) -> dict[str, Dataset]:
    if not plan.far:
        return {}
    # no model learns a user's far images, so all of them serve; of a named data set the test split does
    name, split = Path(plan.far).name, "all" if Path(plan.far).exists() else "test"
    taken = {file_stem(Path(data).name) for data in plan.data_sets}
    taken |= {"clean", "corrupted", "concept-splits", "unseen-classes", *CORRUPTIONS}
    name = f"far {name}" if file_stem(name) in taken else name
    return {name: load(plan.far, split, plan.root or None, plan.size or None)}


def _load_all_classes(plan: Plan, data: str, split: str) -> Dataset:
    return load(data, split, plan.root or None, plan.size or None)


def _unseen_names(plan: Plan, data: str) -> tuple[str, ...]:
    """The held-out classes: those named, or the last of each five (at least one); none for the word none."""
    if plan.suite == "digits":
        return UNSEEN_DIGITS
    names = _load_all_classes(plan, data, "test").names
    if plan.hold_out == ("none",) and "none" not in names:
        return ()
    if plan.hold_out:
        if unknown := sorted(set(plan.hold_out) - set(names)):
            raise wrong("hold_out", f"classes of {data}", ", ".join(unknown), f"it has {', '.join(names)}")
        return plan.hold_out
    if len(names) < 3:
        got = f"{len(names)} in {data}"
        advice = "add classes, or say --hold-out none where a model learns all of them"
        raise wrong("data", "of three classes or more, so that one can be held out,", got, advice)
    return names[4::5] or names[-1:]


def split_by_mean_image(known: Dataset, unseen: Dataset) -> dict[int, tuple[str, ...]]:
    """A ladder of unseen classes by the similarity of their mean image to a known class's: by looks, not meaning."""
    vectors: Vectors = {**_mean_images(known), **_mean_images(unseen)}
    return concept_splits(known.names, unseen.names, vectors, min(_STEPS, len(unseen.names)))


def _mean_images(data: Dataset) -> dict[str, Floats]:
    vectors = {}
    for number, name in enumerate(data.names):
        images = data.images[data.labels == number]
        if not len(images):
            raise wrong("data", "images of every class", f"none of {name}", "leave this class out")
        mean = images.double().mean(0).flatten().numpy()
        centred = mean - mean.mean()
        vectors[name] = centred / max(float(np.linalg.norm(centred)), 1e-12)
    return vectors


def photographs(side: int = 8, most: int = 1000) -> Dataset:
    """Patches of the two photographs that scikit-learn ships, side × side and in colour.

    >>> photographs().images.shape
    torch.Size([1000, 3, 8, 8])
    """
    from sklearn.datasets import load_sample_images

    patches = []
    for image in load_sample_images().images:
        height, width = (length - length % side for length in image.shape[:2])
        cut = image[:height, :width].reshape(height // side, side, width // side, side, 3)
        patches.append(cut.transpose(0, 2, 4, 1, 3).reshape(-1, 3, side, side))
    images = torch.from_numpy(np.ascontiguousarray(np.concatenate(patches)))
    return take_evenly(Dataset(images, torch.zeros(len(images), dtype=torch.int64), ("photograph",)), most)
