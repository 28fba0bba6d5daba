"""Data sets as uint8 images, labels and class names.

`load(name, split)` gives a `Dataset` of images (N, C, H, W), labels and names; `get` downloads one. `DATASETS` lists
the names, licences and downloads. `find`, `verify` and `missing_error` say where a data set is, whether its files are
complete, and what to do if it is missing; `describe_subset` says when it is only a part. `read_images` reads image
files one by one, a broken one with its reason, and each `EncodedImage` of an archive; `list_images` and `list_labelled`
list files. `read_npz` reads the plain arrays of any .npz file.
"""

from shiftprism.datasets._arrays import read_npz
from shiftprism.datasets._catalogue import DATASETS, describe_subset
from shiftprism.datasets._cifar import CIFAR10_NAMES, CIFAR100_NAMES
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._find import find, missing_error, search_folders
from shiftprism.datasets._folders import LabelledPaths, list_labelled
from shiftprism.datasets._images import MOST_BYTES, resize
from shiftprism.datasets._load import get, load
from shiftprism.datasets._read import NOTES, EncodedImage, ImageFile, list_images, read_images
from shiftprism.datasets._verify import Finding, verify

__all__ = [
    "CIFAR10_NAMES",
    "CIFAR100_NAMES",
    "DATASETS",
    "MOST_BYTES",
    "NOTES",
    "Dataset",
    "EncodedImage",
    "Finding",
    "ImageFile",
    "LabelledPaths",
    "describe_subset",
    "find",
    "get",
    "list_images",
    "list_labelled",
    "load",
    "missing_error",
    "read_images",
    "read_npz",
    "resize",
    "search_folders",
    "verify",
]
