"""The type of every data set: images, labels and class names."""

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
        """The selected images and labels, with all the names."""
        return Dataset(self.images[index], self.labels[index], self.names)

    def only(self, names: "list[str] | tuple[str, ...]") -> "Dataset":
        """The images of the classes `names`, renumbered in the order of this data set."""
        unknown = sorted(set(names) - set(self.names))
        if unknown:
            raise wrong("names", "classes of this data set", ", ".join(unknown), f"it has {', '.join(self.names)}")
        kept = [number for number, name in enumerate(self.names) if name in set(names)]
        renumbered = torch.full((len(self.names),), -1)
        renumbered[kept] = torch.arange(len(kept))
        labels = renumbered[self.labels]
        return Dataset(self.images[labels >= 0], labels[labels >= 0], tuple(self.names[number] for number in kept))

    def order_in_class(self) -> Tensor:
        """(N,): i where an image is the i-th of its class, counted from 0."""
        by_class = torch.argsort(self.labels, stable=True)
        counts = torch.bincount(self.labels, minlength=len(self.names))
        order = torch.empty_like(self.labels)
        order[by_class] = torch.cat([torch.arange(int(count)) for count in counts])
        return order

    def divide(self, split: str, every: int = 5) -> "Dataset":
        """The "train" or the "test" part of a data set that has no split of its own.

        Every `every`-th image of each class is for testing. So the split is the same each time, and class-balanced.

        >>> data = Dataset(torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1]), ("a", "b"))
        >>> data.divide("test", every=3).labels
        tensor([0, 1])
        """
        return self.rows((self.order_in_class() % every == every - 1) == (split == "test"))

    @staticmethod
    def concat(parts: "Sequence[Dataset]") -> "Dataset":
        """The images of all `parts`, in order. They must have the same classes. A single part is returned as it is."""
        if len({part.names for part in parts}) != 1:
            got = "different ones" if parts else "no parts"
            raise wrong("parts", "data sets of the same classes", got, "compare their `names`")
        if len(parts) == 1:  # its images stay memory-mapped
            return parts[0]
        images, labels, names = zip(*parts, strict=True)
        return Dataset(torch.cat(images), torch.cat(labels), names[0])

    def check(self, where: str = "data") -> "Dataset":
        """This data set, if shapes and types fit and every label has a name; otherwise an error that names `where`."""
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

    def hold_out(self, share: float, seed: int = 0) -> "tuple[Dataset, Dataset]":
        """(the rest, the held-out part): about `share` of each class, drawn by `seed`. Images keep their order."""
        if not 0 <= share < 1:
            raise wrong("share", "in [0, 1)", share, "it is the fraction of each class to hold out")
        shuffled = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed))
        held_out = torch.zeros(len(self.labels), dtype=torch.bool)
        for number in range(len(self.names)):
            members = shuffled[self.labels[shuffled] == number]
            held_out[members[: round(share * len(members))]] = True
        return self.rows(~held_out), self.rows(held_out)
