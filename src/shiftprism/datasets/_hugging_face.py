"""Data sets of the Hugging Face Hub, through the extra `hf`."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shiftprism._checks import wrong
from shiftprism._extras import need
from shiftprism._files import check_file
from shiftprism.datasets._cache import Source
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._folders import SPLIT_FOLDERS, LabelledFiles, load_images
from shiftprism.datasets._images import Picture


def load_hugging_face(name: str, split: str, cache: Path, size: int | None) -> Dataset:
    """The images and class labels of "owner/name" or "owner/name:configuration".

    No code of the data set is run: `datasets` reads its files, and the images are decoded like a folder's. A table for
    training that stands alone is divided, so that no image is in both splits.
    """
    module = need("datasets", "hf")
    place, _, configuration = name.partition(":")
    tables = module.load_dataset(place, configuration or None)
    parts = {
        part: next((tables[each] for each in names if each in tables), None) for part, names in SPLIT_FOLDERS.items()
    }
    wanted = [table for part, table in parts.items() if table is not None and split in (part, "all")]
    if parts["train"] is not None and len(tables) == 1 and split != "all":
        word = f"hf:{name} has the table {next(iter(tables))} alone: every fifth image of a class is for testing"
        warnings.warn(word, stacklevel=2)
        return _read(module, f"hf:{name}", parts["train"], cache, size).divide(split)
    if not wanted:
        raise wrong("split", f"one of {', '.join(tables)}", f"{split!r} for hf:{name}", "choose one that it has")
    return Dataset.concat([_read(module, f"hf:{name}", table, cache, size) for table in wanted])


def _read(module: Any, name: str, table: Any, cache: Path, size: int | None) -> Dataset:
    images, labels = _column(name, table, "Image"), _column(name, table, "ClassLabel")
    names = tuple(table.features[labels].names)
    # The bytes of the files, not images that the library decoded: they go through the same checks as all others.
    raw = table.cast_column(images, module.Image(decode=False))
    pictures = [Picture(f"{name} row {row}", _reader(raw, images, row)) for row in range(len(raw))]
    source = Source("hugging-face", (name, str(table.split)), table._fingerprint)
    return load_images(LabelledFiles(pictures, list(table[labels]), names, source), cache, size)


def _column(name: str, table: Any, kind: str) -> str:
    """The column of a kind. Among several it is the one with a usual name, or else the first."""
    columns = [column for column, feature in table.features.items() if type(feature).__name__ == kind]
    if not columns:
        got = f"{name} with {', '.join(table.features)}"
        raise wrong("name", f"a data set with a column of type {kind}", got, "choose another, or write an .npz of it")
    return next((column for column in ("image", "img", "label", "fine_label") if column in columns), columns[0])


def _reader(table: Any, column: str, row: int) -> Callable[[], bytes]:
    def read() -> bytes:
        cell = table[row][column]
        return bytes(cell["bytes"]) if cell["bytes"] is not None else check_file(Path(cell["path"])).read_bytes()

    return read
