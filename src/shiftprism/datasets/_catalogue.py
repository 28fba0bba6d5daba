"""The data sets known by name: their formats, licences and downloads."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from shiftprism.datasets._cifar import (
    CIFAR10,
    CIFAR10_NAMES,
    CIFAR100,
    CIFAR100_NAMES,
    Cifar,
    load_binary,
    load_python,
)
from shiftprism.datasets._corrupted import load_corrupted
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._digits import load_digits
from shiftprism.datasets._download import Download
from shiftprism.datasets._idx import FASHION_NAMES, FILES, MNIST_NAMES, load_idx
from shiftprism.datasets._svhn import load_svhn
from shiftprism.datasets._tiny_imagenet import load_tiny_imagenet


class Request(NamedTuple):
    """What to read from the files of a data set."""

    split: str
    part: str
    """What follows the name: "motion_blur/3" in "cifar10-c/motion_blur/3"."""
    cache: Path
    """The folder for decoded images."""


class Format(NamedTuple):
    """One of the formats that a data set comes in."""

    path: str
    """The file or folder below a root; empty for a data set that needs no file."""
    read: Callable[[Path, Request], Dataset]
    files: Mapping[str, Sequence[str]] | None = None
    """For a folder: the files of each split. A split counts as found if at least one of them exists."""


class Entry(NamedTuple):
    """A data set that has a name."""

    about: str
    licence: str
    formats: tuple[Format, ...]
    """In the order in which they are looked for."""
    downloads: tuple[Download, ...] = ()
    splits: tuple[str, ...] = ("train", "test")
    published: Mapping[str, int] = MappingProxyType({})
    """How many images of each split the publisher has, where the format also allows files with fewer."""


def _cifar_formats(kind: Cifar) -> tuple[Format, ...]:
    # The folder cifar-10-batches-bin comes in cifar-10-binary.tar.gz, cifar-100-binary in cifar-100-binary.tar.gz.
    binary, python = kind.binary.replace("batches-bin", "binary"), kind.python.replace("batches-py", "python")
    bins = {split: [f"{name}.bin" for name in names] for split, names in kind.batches.items()}
    return (
        Format(kind.binary, lambda path, request: load_binary(kind, path, request.split), bins),
        Format(f"{binary}.tar.gz", lambda path, request: load_binary(kind, path, request.split)),
        Format(kind.python, lambda path, request: load_python(kind, path, request.split), kind.batches),
        Format(f"{python}.tar.gz", lambda path, request: load_python(kind, path, request.split)),
    )


def _idx_formats(folders: Sequence[str], names: tuple[str, ...]) -> tuple[Format, ...]:
    files = {split: [f"{name}{end}" for name in pair for end in ("", ".gz")] for split, pair in FILES.items()}
    return tuple(
        Format(folder, lambda path, request: load_idx(path, request.split, names), files) for folder in folders
    )


def _svhn_format(folder: str) -> Format:
    files = {split: [f"{split}_32x32.mat"] for split in ("train", "test")}
    return Format(folder, lambda path, request: load_svhn(path / f"{request.split}_32x32.mat"), files)


def _tiny_format(path: str, files: Mapping[str, Sequence[str]] | None = None) -> Format:
    return Format(path, lambda place, request: load_tiny_imagenet(place, request.split, request.cache), files)


def _corrupted_formats(folder: str, names: tuple[str, ...]) -> tuple[Format, ...]:
    def read(path: Path, request: Request) -> Dataset:
        return load_corrupted(path, request.part, names)

    return Format(folder, read, {"test": ["labels.npy"]}), Format(f"{folder}.tar", read)


def _idx_downloads(folder: str, mirrors: Sequence[str], files: Mapping[str, tuple[int, str]]) -> tuple[Download, ...]:
    return tuple(
        Download(tuple(f"{mirror}/{name}.gz" for mirror in mirrors), f"{folder}/{name}.gz", size, f"sha256:{digest}")
        for name, (size, digest) in files.items()
    )


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_CIFAR_LICENCE = "no licence stated; the publisher asks to cite Krizhevsky 2009"

DATASETS: dict[str, Entry] = {
    "digits": Entry(
        "1,797 grey digits, 8 × 8, 10 classes, bundled with scikit-learn",
        "CC BY 4.0",
        (Format("", lambda path, request: load_digits(request.split)),),
    ),
    "cifar10": Entry(
        "60,000 colour photographs, 32 × 32, 10 classes",
        _CIFAR_LICENCE,
        _cifar_formats(CIFAR10),
        (
            Download(
                (f"{_TORONTO}/cifar-10-binary.tar.gz",),
                "cifar-10-binary.tar.gz",
                170_052_171,
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
    ),
    "cifar100": Entry(
        "60,000 colour photographs, 32 × 32, 100 classes",
        _CIFAR_LICENCE,
        _cifar_formats(CIFAR100),
        (
            Download(
                (f"{_TORONTO}/cifar-100-binary.tar.gz",),
                "cifar-100-binary.tar.gz",
                168_513_733,
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
    ),
    "cifar10-c": Entry(
        "the CIFAR-10 test set under 19 corruptions at 5 severities: cifar10-c/<corruption>/<severity>",
        "CC BY 4.0",
        _corrupted_formats("CIFAR-10-C", CIFAR10_NAMES),
        (
            Download(
                ("https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",),
                "CIFAR-10-C.tar",
                2_918_471_680,
                "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
            ),
        ),
        ("test",),
    ),
    "cifar100-c": Entry(
        "the CIFAR-100 test set under 19 corruptions at 5 severities: cifar100-c/<corruption>/<severity>",
        "CC BY 4.0",
        _corrupted_formats("CIFAR-100-C", CIFAR100_NAMES),
        (
            Download(
                ("https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",),
                "CIFAR-100-C.tar",
                2_918_473_216,
                "md5:11f0ed0f1191edbf9fa23466ae6021d3",
            ),
        ),
        ("test",),
    ),
    "mnist": Entry(
        "70,000 grey handwritten digits, 28 × 28, 10 classes",
        "CC BY-SA 3.0",
        _idx_formats(("mnist", "MNIST/raw"), MNIST_NAMES),
        _idx_downloads(
            "mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
            {
                FILES["train"][0]: (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                FILES["train"][1]: (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                FILES["test"][0]: (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                FILES["test"][1]: (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
            },
        ),
    ),
    "fashion-mnist": Entry(
        "70,000 grey pictures of clothes, 28 × 28, 10 classes",
        "MIT",
        _idx_formats(("fashion-mnist", "FashionMNIST/raw"), FASHION_NAMES),
        _idx_downloads(
            "fashion-mnist",
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
            {
                FILES["train"][0]: (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
                FILES["train"][1]: (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
                FILES["test"][0]: (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
                FILES["test"][1]: (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
            },
        ),
    ),
    "svhn": Entry(
        "99,289 colour house-number digits (73,257 to train, 26,032 to test), 32 × 32, 10 classes",
        "non-commercial use only",
        (_svhn_format("svhn"), _svhn_format(".")),
        tuple(
            Download(
                (f"http://ufldl.stanford.edu/housenumbers/{split}_32x32.mat",),
                f"svhn/{split}_32x32.mat",
                size,
                f"sha256:{digest}",
            )
            for split, size, digest in (
                ("train", 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
                ("test", 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
            )
        ),
        published={"train": 73_257, "test": 26_032},
    ),
    "tiny-imagenet": Entry(
        "110,000 colour photographs resized to 32 × 32, 200 classes",
        "ImageNet's terms: non-commercial research and teaching",
        (
            _tiny_format("tiny-imagenet-32", {"train": ["train"], "test": ["val", "test"]}),
            _tiny_format("tiny-imagenet-200", {"train": ["wnids.txt", "train"], "test": ["wnids.txt", "val"]}),
            _tiny_format("tiny-imagenet-200.zip"),
        ),
        (
            Download(
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                "tiny-imagenet-200.zip",
                248_100_043,
                "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            ),
        ),
    ),
}
"""Every data set that `load` and `shiftprism data get` know by name."""


def describe_subset(name: str, split: str, count: int) -> str:
    """What to call `count` images of a split where the publisher has more; empty where that is not known to be so.

    >>> describe_subset("svhn", "test", 10_000), describe_subset("svhn", "test", 26_032)
    ('a subset: 10,000 of the 26,032 published test images', '')
    """
    published = DATASETS[name].published.get(split, 0) if name in DATASETS else 0
    return f"a subset: {count:,} of the {published:,} published {split} images" if count < published else ""
