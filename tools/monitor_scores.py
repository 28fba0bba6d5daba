"""Scores of one network on streams' raw material, kept as plain arrays for `monitor_trial.py`.

Run with: .venv/bin/python tools/monitor_scores.py RESNET20.npz --backbone resnet20 --cache DIR [--root DATA]
      or: .venv/bin/python tools/monitor_scores.py RUN --cache DIR [--root DATA]      (a folder that `train` wrote)
      or: .venv/bin/python tools/monitor_scores.py CELL --cache DIR     (of benchmark/cifar10/cells: no style there)

Fitted to: 8,000 training images and CIFAR-10 test images 0–1,999, with copies of some under the extras. The edges of
the monitor's bins come from test images 1,000–1,999. Streams are made of test images from 2,000 on: 2,000–2,999 under
the 15 corruptions, the others clean. Outputs are kept in DIR and read again.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftprism import Classifier, predict
from shiftprism.backbones import BACKBONES, load_arrays
from shiftprism.calibrators import ShiftAware, Temperature
from shiftprism.corruptions import COMMON, corrupt
from shiftprism.datasets import load
from shiftprism.heads import Linear
from shiftprism.outputs import Outputs
from shiftprism.scores import Style, g, gen, h
from spectrum_trial import EXTRAS, MEAN, OTHERS, STD, Data, Set, copies, join, shifted_outputs

CLEAN = slice(2000, 10_000)
COPIES = 125
"""Copies of images under each extra and severity."""
CHANGED = 1000
"""Images of each corrupted condition: the first of CLEAN."""


def read_classifier(source: Path, backbone: str) -> Classifier:
    """A run of `shiftprism train`, or a public network from arrays."""
    if source.is_dir():
        return Classifier.load(source).eval()
    body, head = BACKBONES[backbone](), Linear(64, 10, bias=True)
    load_arrays(source, body, head)
    return Classifier(body, head, MEAN, STD).eval()


def read_outputs(source: Path, words: argparse.Namespace, name: str) -> Data:
    """The Outputs of all sets, computed where the cache has none."""
    classifier = read_classifier(source, words.backbone)
    train, test = load("cifar10", "train", words.root), load("cifar10", "test", words.root)

    def keep(stem: str, make: Callable[[], Tensor], labels: Tensor) -> Set:
        path = words.cache / name / f"{stem}.safetensors"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            predict(classifier, make())[0].save(path, labels)
        outputs, stored = Outputs.load(path)
        assert stored is not None
        return Set(outputs, stored)

    extras = {}
    for number, (level, extra) in enumerate((level, extra) for level in (3, 5, 1) for extra in EXTRAS):
        rows = (number * COPIES + torch.arange(COPIES)) % 1000
        images = torch.cat([test.images[rows], test.images[1000 + rows], train.images[10_000 + rows]])
        labels = torch.cat([test.labels[rows], test.labels[1000 + rows], train.labels[10_000 + rows]])
        extras[extra, level] = keep(f"extra-{extra}-{level}", lambda: corrupt(images, extra, level), labels)  # noqa: B023
    tested = slice(CLEAN.start, CLEAN.start + CHANGED)
    corrupted = {}
    for kind in COMMON:
        for level in range(1, 6):
            stem = f"corrupted-{CHANGED}-{kind}-{level}"
            make = lambda: corrupt(test.images[tested], kind, level)  # noqa: B023, E731
            corrupted[kind, level] = keep(stem, make, test.labels[tested])
    parts = {"clean": slice(2000, 6000), "clean-rest": slice(6000, 10_000)}
    clean = [keep(stem, lambda: test.images[part], test.labels[part]) for stem, part in parts.items()]  # noqa: B023
    others = {}
    for other, origin in OTHERS.items():
        unseen = load(origin, "test", words.root)  # every fifth image: Tiny ImageNet comes class by class
        others[other] = keep(other, lambda: unseen.images[0:10_000:5], unseen.labels[0:10_000:5])  # noqa: B023
    return Data(
        keep("train", lambda: train.images[:8000], train.labels[:8000]),
        keep("fit", lambda: test.images[:2000], test.labels[:2000]),
        join(clean),
        extras,
        others,
        corrupted,
    )


def score_sets(data: Data) -> dict[str, NDArray[np.float64]]:
    """ "SET/FIELD" -> (N,): scores, predicted class (label) and true class, whether they agree, and confidences."""
    first = data.fit.rows(slice(1000))
    style = Style.fit(join([data.train, first]).outputs, shifted_outputs(copies(data, "at")))
    temperature, aware = Temperature.fit(*data.fit), ShiftAware.fit(*data.fit, shifted=dict(copies(data, "ab")))
    sets = {"fit": data.fit, "clean": data.clean, **data.others}
    sets |= {f"{name}-{level}": one for (name, level), one in data.corrupted.items()}
    # copies of test images 1,000–1,999 under extras: what choices may rest on; style was fitted to others
    second = slice(COPIES, 2 * COPIES)
    sets |= {f"extra-{name}-{level}": one.rows(second) for (name, level), one in data.extras.items()}
    arrays: dict[str, NDArray[np.float64]] = {}
    for name, (outputs, labels) in sets.items():
        tables = {"plain": outputs.logits, "temperature": temperature(outputs), "aware": aware(outputs)}
        fields = {score.__name__: score(outputs) for score in (g, h, gen)} | {"style": style(outputs)}
        fields |= {key: torch.softmax(each.double(), 1).max(1).values for key, each in tables.items()}
        fields |= {"label": outputs.predictions, "class": labels, "right": outputs.predictions == labels}
        arrays |= {f"{name}/{field}": values.double().numpy() for field, values in fields.items()}
    return arrays


def score_cell(folder: Path) -> dict[str, NDArray[np.float64]]:
    """The same of the few outputs that the package carries: 1,000 clean images, 200 of each corruption, no style.

    Clean images 200–299 are for the edges of bins; the first 200 are those that were corrupted.
    """
    sets = {}
    for file in sorted((folder / "outputs").glob("*.safetensors")):
        name = {"cifar100-0": "cifar100", "svhn-0": "svhn", "tiny-imagenet-0": "tin"}.get(file.stem, file.stem)
        outputs, labels = Outputs.load(file)
        assert labels is not None
        sets[name] = Set(Outputs(*(each.float() for each in outputs)), labels)
    clean = sets.pop("clean-0")
    kept = torch.cat([torch.arange(200), torch.arange(300, len(clean.labels))])
    sets |= {"fit": clean.rows(torch.arange(200, 300)), "clean": clean.rows(kept)}
    arrays: dict[str, NDArray[np.float64]] = {}
    for name, (outputs, labels) in sets.items():
        fields = {score.__name__: score(outputs) for score in (g, h, gen)}
        fields |= {"label": outputs.predictions, "class": labels, "right": outputs.predictions == labels}
        fields["aware"] = torch.softmax(outputs.logits, 1).max(1).values
        arrays |= {f"{name}/{field}": values.double().numpy() for field, values in fields.items()}
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--root", type=Path)
    words = parser.parse_args()
    torch.set_num_threads(1)
    for source in words.sources:
        name = source.name if source.is_dir() else words.backbone
        cell = (source / "outputs").is_dir()
        arrays = score_cell(source) if cell else score_sets(read_outputs(source, words, name))
        np.savez_compressed(words.cache / f"{name}.npz", allow_pickle=False, **arrays)
        print(words.cache / f"{name}.npz")


if __name__ == "__main__":
    main()
