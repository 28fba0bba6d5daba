"""Real evidence that travels with the package: what two CIFAR-10 networks say about a sample of every set.

No images and no features: |f|, the similarities and the logits in half precision are all that g, h, U and calibration
read. Made by `tools/bundle.py`, which docs/benchmark.md tells more about.
"""

import json
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._files import write_tensors
from shiftprism.benchmark._evidence import Evidence, Source
from shiftprism.calibrators import AlphaBeta, Temperature
from shiftprism.datasets import Dataset
from shiftprism.outputs import Outputs
from shiftprism.shifts import Shift

_FORMAT = "shiftprism-bundle-1"
_KEPT = ("norms", "similarities", "logits")
_FILE = "cifar10.safetensors"


def bundled() -> list[Evidence]:
    """The evidence inside the package: one vanilla and one α-β network, trained on 45,000 images of CIFAR-10."""
    with as_file(files("shiftprism.benchmark").joinpath(_FILE)) as path:
        return read_bundle(path)


def write_bundle(path: Path, evidence: Sequence[tuple[Evidence, Outputs, Tensor]], about: str) -> None:
    """Evidence, with each model's Outputs and labels of its held-out set: to these calibrators are fitted on reading.

    Heads must have no bias: W f is taken to be |f| times the similarities, and is not stored.
    """
    tensors: dict[str, Tensor] = {}
    sources, sets = [], dict[str, tuple[str, str, int]]()
    for one, held, held_labels in evidence:
        parts = [(("held-out", "none", 0), held, held_labels), (("clean", "none", 0), one.clean, one.labels)]
        parts += [((s.name, s.kind, s.severity), outputs, labels) for s, outputs, labels in one.shifted]
        sources.append(list(one.source))
        for where, outputs, labels in parts:
            if not torch.allclose(outputs.raw, outputs.norms[:, None] * outputs.similarities, rtol=1e-3, atol=1e-3):
                raise wrong("evidence", "of heads without a bias", one.model, "its raw logits could not be made again")
            key = f"{where[0]}-{where[2]}"
            sets[key] = where
            tensors |= {f"{one.model}/{key}/{name}": getattr(outputs, name).half() for name in _KEPT}
            tensors[f"{one.model}/{key}/labels"] = labels.to(torch.uint8)
    described = {"format": _FORMAT, "about": about, "sources": json.dumps(sources), "sets": json.dumps(sets)}
    write_tensors(path, tensors, described)


def read_bundle(path: Path) -> list[Evidence]:
    """The evidence of a file, its calibrators (temperature, alpha-beta) fitted to the held-out sets in it."""
    with safe_open(path, framework="pt") as file:
        about = file.metadata() or {}
        if about.get("format") != _FORMAT:
            raise wrong("path", f"a file of format {_FORMAT}", str(path), "make it with tools/bundle.py")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    found = []
    for fields in json.loads(about["sources"]):
        source = Source(*fields)
        sets: dict[str, Any] = {
            key: (where, *_restored(tensors, f"{source.model}/{key}"))
            for key, where in json.loads(about["sets"]).items()
        }
        _, held, held_labels = sets.pop("held-out-0")
        _, clean, labels = sets.pop("clean-0")
        fitted = {"temperature": Temperature.fit(held, held_labels), "alpha-beta": AlphaBeta.fit(held, held_labels)}
        shifted = [
            (Shift(where[0], where[1], where[2], _no_images), outputs, own) for where, outputs, own in sets.values()
        ]
        found.append(Evidence(source, clean, labels, fitted, shifted))
    return found


def _restored(tensors: dict[str, Tensor], key: str) -> tuple[Outputs, Tensor]:
    norms, similarities, logits = (tensors[f"{key}/{name}"].float() for name in _KEPT)
    # one feature of length |f| stands for those that were left out: nothing that reads a bundle looks at directions
    outputs = Outputs(norms[:, None], norms, similarities, norms[:, None] * similarities, logits)
    return outputs, tensors[f"{key}/labels"].long()


def _no_images() -> Dataset:
    raise wrong("shift", "one whose images are at hand", "a bundled one", "load the data set: shiftprism data get")
