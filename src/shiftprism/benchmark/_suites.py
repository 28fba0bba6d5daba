"""The data a model is trained on and the ladder of shifts it meets; made once and kept in the folder of results."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from shiftprism._checks import Floats, wrong
from shiftprism._files import write_tensors
from shiftprism.benchmark._digits import UNSEEN_DIGITS
from shiftprism.benchmark._plan import Plan, file_name, slug
from shiftprism.corruptions import CORRUPTIONS
from shiftprism.datasets import Dataset, load
from shiftprism.shifts import Shift, concept, concept_splits, covariate, hold_out, suite
from shiftprism.shifts._vectors import Vectors

_STEPS = 5
"""The most steps of a ladder of unseen classes."""


class Home(NamedTuple):
    """The ID data: what `load` and `training.run` take, and what a row calls it."""

    name: str
    source: str
    root: Path | None

    def load(self, split: str) -> Dataset:
        """The "train" or "test" images of the classes a model learns."""
        return load(self.source, split, self.root)


def home(plan: Plan, data: str, out: Path) -> Home:
    """The ID data of a plan. Where classes are held out, the others are written to the results' folder first."""
    if plan.suite == "paper":
        return Home(data, data, Path(plan.root) if plan.root else None)
    (file,) = home_files(plan, out)
    if not file.exists():
        train, test = (hold_out(_whole(plan, data, split), _unseen_names(plan, data))[0] for split in ("train", "test"))
        tensors = {"train_images": train.images, "train_labels": train.labels}
        tensors |= {"test_images": test.images, "test_labels": test.labels}
        write_tensors(file, tensors, {"names": json.dumps(train.names)})
    return Home(file.stem, str(file.relative_to(out)), out)


def home_files(plan: Plan, out: Path) -> list[Path]:
    """Where the classes that a model learns are written to; nowhere for a suite that holds none out."""
    names = () if plan.suite == "paper" else (slug(Path(data).name) for data in plan.data)
    return [out / "data" / f"{name}.safetensors" for name in names]


def shifts(plan: Plan, data: str, out: Path) -> list[Shift]:
    """Every shift of the plan; a shift's images are made when first asked for and then read from the folder."""
    own = home(plan, data, out)
    test = own.load("test")
    corrupted = covariate(few(test, plan.corrupted_images or plan.images), plan.corruptions)
    folder = out / "shifted" / own.name
    found = [*_others(plan, data, own, test), *corrupted]
    return [one._replace(make=partial(_stored, folder, one, plan.images)) for one in found]


def few(data: Dataset, most: int) -> Dataset:
    """At most so many images, evenly spaced, for some sets are sorted by class; 0 for all."""
    if not most or len(data.images) <= most:
        return data
    return data.rows(torch.linspace(0, len(data.images) - 1, most).round().long())


def _stored(folder: Path, shift: Shift, most: int) -> Dataset:
    path = folder / file_name(shift.name, shift.severity)
    if not path.exists():  # two processes may both make it: the bytes are the same, and each writes a whole file
        made = few(shift.make(), most)
        images = made.images.contiguous()
        write_tensors(path, {"images": images, "labels": made.labels}, {"names": json.dumps(made.names)})
    return load(str(path.resolve()), "all")


def _others(plan: Plan, data: str, own: Home, test: Dataset) -> Iterator[Shift]:
    if plan.suite == "paper":
        yield from suite("near-far", test, root=own.root)
        for step in suite("concept-splits", test, root=own.root):
            yield step._replace(name="concept-splits")
        return
    unseen = hold_out(_whole(plan, data, "all"), _unseen_names(plan, data))[1]
    near = "unseen digits" if plan.suite == "digits" else "unseen classes"
    far = {"photographs": photographs()} if plan.suite == "digits" else _far(plan)
    yield from suite("near-far", test, near={near: unseen}, far=far)
    if len(unseen.names) > 1:
        yield from concept(unseen, by_mean_image(test, unseen), "concept-splits")


def _far(plan: Plan) -> dict[str, Dataset]:
    if not plan.far:
        return {}
    name, split = Path(plan.far).name, "all" if Path(plan.far).exists() else "test"  # of its own no model learns any
    taken = {slug(Path(data).name) for data in plan.data} | {"clean", "corrupted", "concept-splits", *CORRUPTIONS}
    name = f"far {name}" if slug(name) in taken | {"unseen-classes"} else name
    return {name: load(plan.far, split, plan.root or None, plan.size or None)}


def _whole(plan: Plan, data: str, split: str) -> Dataset:
    return load(data, split, plan.root or None, plan.size or None)


def _unseen_names(plan: Plan, data: str) -> tuple[str, ...]:
    """The classes kept back: those named, or every fifth, the last of each five (at least one)."""
    if plan.suite == "digits":
        return UNSEEN_DIGITS
    names = _whole(plan, data, "test").names
    if plan.hold_out:
        if unknown := sorted(set(plan.hold_out) - set(names)):
            raise wrong("hold_out", f"classes of {data}", ", ".join(unknown), f"it has {', '.join(names)}")
        return plan.hold_out
    if len(names) < 3:
        got = f"{len(names)} in {data}"
        raise wrong("data", "of three classes or more, so that one can be held out,", got, "add classes")
    return names[4::5] or names[-1:]


def by_mean_image(known: Dataset, unseen: Dataset) -> dict[int, tuple[str, ...]]:
    """A ladder of unseen classes by how alike their mean image is to a known class's: by looks, not by meaning."""
    vectors: Vectors = {**_mean_images(known), **_mean_images(unseen)}
    return concept_splits(known.names, unseen.names, vectors, min(_STEPS, len(unseen.names)))


def _mean_images(data: Dataset) -> dict[str, Floats]:
    found = {}
    for number, name in enumerate(data.names):
        own = data.images[data.labels == number]
        if not len(own):
            raise wrong("data", "images of every class", f"none of {name}", "leave this class out")
        mean = own.double().mean(0).flatten().numpy()
        centred = mean - mean.mean()
        found[name] = centred / max(float(np.linalg.norm(centred)), 1e-12)
    return found


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
    return few(Dataset(images, torch.zeros(len(images), dtype=torch.int64), ("photograph",)), most)
