"""Files that are either whole or absent."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and is removed when it does not.

    The bytes are on the disk before the name changes, so a crash leaves the old file or the new one, never a half.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: "dict[str, Tensor]", about: dict[str, str]) -> None:
    """Write a safetensors file, whole or not at all; a full disk is an OSError, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as beside:
        try:
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, beside, about)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written: {error}; what was there before is untouched") from error
