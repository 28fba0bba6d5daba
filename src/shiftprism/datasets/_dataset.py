"""The one type every data set is: images, labels and the classes' names."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism._checks import wrong


class Dataset(NamedTuple):
    """N labelled images.

    >>> data = Dataset(torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 1, 1, 2, 2]), ("a", "b", "c"))
    >>> len(data.only(["c", "a"]).images), data.only(["c", "a"]).names
    (4, ('a', 'c'))
    """

    images: Tensor
    """(N, C, H, W), uint8."""
    labels: Tensor
    """(N,), int64: positions in `names`."""
    names: tuple[str, ...]
    """The name of each class."""

    def rows(self, index: "slice | Tensor") -> "Dataset":
        """The chosen images and labels, the names unchanged."""
        return Dataset(self.images[index], self.labels[index], self.names)

    def only(self, names: "list[str] | tuple[str, ...]") -> "Dataset":
        """The images of the classes named, renumbered in the order the data set has them."""
        unknown = sorted(set(names) - set(self.names))
        if unknown:
            raise wrong("names", "classes of this data set", ", ".join(unknown), f"it has {', '.join(self.names)}")
        kept = [number for number, name in enumerate(self.names) if name in set(names)]
        renumbered = torch.full((len(self.names),), -1)
        renumbered[kept] = torch.arange(len(kept))
        labels = renumbered[self.labels]
        return Dataset(self.images[labels >= 0], labels[labels >= 0], tuple(self.names[number] for number in kept))

    def divided(self, split: str, every: int = 5) -> "Dataset":
        """The "train" or the "test" part of a data set that has no split of its own.

        Of each class every `every`-th image, in the order it has them, is for testing: fixed and class-balanced.

        >>> data = Dataset(torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1]), ("a", "b"))
        >>> data.divided("test", every=3).labels
        tensor([0, 1])
        """
        order = torch.argsort(self.labels, stable=True)
        counts = torch.bincount(self.labels, minlength=len(self.names))
        place = torch.empty_like(self.labels)  # the how-manieth of its class each image is
        place[order] = torch.cat([torch.arange(int(count)) for count in counts])
        return self.rows((place % every == every - 1) == (split == "test"))

    @staticmethod
    def concat(parts: "Sequence[Dataset]") -> "Dataset":
        """The images of all `parts`, in order; they must have the same classes. A single part stays mapped."""
        if len({part.names for part in parts}) != 1:
            got = "different ones" if parts else "no parts"
            raise wrong("parts", "data sets of the same classes", got, "compare their `names`")
        if len(parts) == 1:
            return parts[0]
        images, labels, names = zip(*parts, strict=True)
        return Dataset(torch.cat(images), torch.cat(labels), names[0])

    def check(self, where: str = "data") -> "Dataset":
        """Itself, if shapes and types fit and every label has a name; an error that names `where` otherwise."""
        images, labels, names = self
        if images.ndim != 4 or images.dtype != torch.uint8 or 0 in images.shape:
            got = f"{images.dtype} of shape {tuple(images.shape)}"
            raise wrong(where, "uint8 images of shape (N, C, H, W)", got, "see shiftprism.datasets.Dataset")
        if labels.shape != (len(images),) or labels.dtype != torch.int64:
            got = f"{labels.dtype} of shape {tuple(labels.shape)} for {len(images)} images"
            raise wrong(where, "labelled by one int64 for each image", got, "compare the numbers of images and labels")
        if int(labels.min()) < 0 or int(labels.max()) >= len(names):
            row = int(((labels < 0) | (labels >= len(names))).nonzero()[0])
            got = f"label {int(labels[row])} at image {row}"
            raise wrong(where, f"labelled from 0 to {len(names) - 1}", got, "correct the labels or add the names")
        if len(set(names)) != len(names):
            raise wrong(where, "named by one name for each class", "a name twice", "rename one of the classes")
        return self

    def set_aside(self, share: float, seed: int = 0) -> "tuple[Dataset, Dataset]":
        """(the rest, about `share` of every class), drawn by `seed`, each in the order the data set has them."""
        if not 0 <= share < 1:
            raise wrong("share", "in [0, 1)", share, "it is the part of each class to set aside")
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed))
        aside = torch.zeros(len(self.labels), dtype=torch.bool)
        for number in range(len(self.names)):
            members = order[self.labels[order] == number]
            aside[members[: round(share * len(members))]] = True
        return self.rows(~aside), self.rows(aside)
