"""Classifier = normalisation + backbone + head. It takes images as uint8 or as floats in [0, 1] and says Outputs."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism._files import write_tensors, write_text
from shiftprism.backbones import BACKBONES
from shiftprism.heads import HEADS, Head
from shiftprism.outputs import Outputs

_FORMAT = "shiftprism-model-1"


class Classifier(nn.Module):
    """A backbone and a head behind per-channel normalisation, so that every perturbation lives in [0, 1].

    >>> classifier = Classifier.build("digits", "alpha-beta", names=("cat", "dog"), channels=1)
    >>> classifier.outputs(torch.zeros(5, 1, 8, 8, dtype=torch.uint8))
    Outputs(N=5, D=64, K=2)
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if not isinstance(head, Head):
            raise wrong("head", "a shiftprism head", type(head).__name__, "use shiftprism.adapt(model, example)")
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise wrong("std", f"{len(mean)} positive numbers", list(std), "pass one mean and one std for each channel")
        self.backbone = backbone
        self.head = head
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32)[:, None, None])
        self.mean: Tensor
        self.std: Tensor
        self.names = tuple(names) or tuple(str(number) for number in range(head.out_features))
        self.recipe: dict[str, Any] | None = None

    @staticmethod
    def build(
        backbone: str,
        head: str,
        names: Sequence[str],
        channels: int = 3,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        seed: int = 0,
        **arguments: Any,
    ) -> "Classifier":
        """A new classifier from the names of its parts; `arguments` go to the backbone, `seed` draws the weights."""
        choice("backbone", backbone, BACKBONES)
        choice("head", head, HEADS)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body = BACKBONES[backbone](channels=channels, **arguments)
            width = int(getattr(body, "out_features"))  # noqa: B009 (nn.Module types attributes as tensors)
            top = HEADS[head](width, len(names))
        made = Classifier(body, top, mean or (0.0,) * channels, std or (1.0,) * channels, names)
        made.recipe = {"backbone": backbone, "arguments": {"channels": channels, **arguments}, "head": head}
        return made

    def normalise(self, images: Tensor) -> Tensor:
        """(x − mean) / std by channel, with uint8 first brought to [0, 1]."""
        if images.ndim != 4:
            raise wrong("images", "of shape (N, C, H, W)", f"shape {tuple(images.shape)}", "add the batch dimension")
        if images.dtype == torch.uint8:
            images = images.to(self.mean.dtype) / 255
        elif not images.is_floating_point():
            raise wrong("images", "uint8, or floats in [0, 1]", f"{images.dtype}", "convert them with .to(torch.uint8)")
        if self.mean.shape[0] not in (1, images.shape[1]):
            got = f"{images.shape[1]} channels"
            raise wrong(
                "images", f"of {self.mean.shape[0]} channels", got, "this model was normalised for another kind"
            )
        return (images - self.mean) / self.std

    def features(self, images: Tensor) -> Tensor:
        """f, (N, D): what the head reads."""
        found: Tensor = self.backbone(self.normalise(images))
        return found

    def outputs(self, images: Tensor) -> Outputs:
        """Everything the classifier says about a batch."""
        return self.head.outputs(self.features(images))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits

    def fingerprint(self) -> str:
        """A SHA-256 of weights and normalisation: equal for equal models, on any device."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(bytes_of(tensor))
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write `weights.safetensors`, then `model.json`: a folder that has the second is whole."""
        folder = Path(folder)
        write_tensors(folder / "weights.safetensors", self.state_dict(), {"format": _FORMAT})
        about = {"format": _FORMAT, "names": list(self.names), "recipe": self.recipe, "weights": self.fingerprint()}
        write_text(folder / "model.json", json.dumps(about, indent=2) + "\n")

    @staticmethod
    def load(folder: str | Path, backbone: nn.Module | None = None, head: Head | None = None) -> "Classifier":
        """The classifier saved in a folder. One that was adapted needs its `backbone` and `head` given, as code."""
        folder = Path(folder)
        about = _about(folder)
        recipe = about.get("recipe")
        names = tuple(about["names"])
        if recipe is not None:
            arguments = dict(recipe["arguments"])
            empty = Classifier.build(recipe["backbone"], recipe["head"], names, **arguments)
        elif backbone is None or head is None:
            got = "a model that was adapted from code"
            raise wrong("backbone", "given, with `head`,", got, "pass both as you built them: Classifier.load(…)")
        else:
            empty = Classifier(backbone, head, names=names)
        try:
            state = load_file(folder / "weights.safetensors")
        except (SafetensorError, OSError) as error:
            got = f"{folder / 'weights.safetensors'} ({error})"
            raise wrong("folder", "a whole saved model", got, "save the model again") from error
        channels = len(state.get("mean", empty.mean))
        empty.mean, empty.std = empty.mean.new_zeros(channels, 1, 1), empty.std.new_ones(channels, 1, 1)
        _strict(empty, state, folder)
        if empty.fingerprint() != about["weights"]:
            raise wrong("folder", "a whole saved model", f"{folder} with other weights", "save the model again")
        return empty.eval()


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise wrong(
            "folder", "a saved model", f"{folder} ({error})", "name a folder that Classifier.save wrote"
        ) from error
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise wrong("folder", f"a model of format {_FORMAT}", str(folder), "it was written by another version")
    return about


def _strict(empty: Classifier, state: dict[str, Tensor], folder: Path) -> None:
    """Load, naming every tensor that is missing, extra or of another shape."""
    own = empty.state_dict()
    faults = [f"{name} is missing" for name in sorted(own.keys() - state.keys())]
    faults += [f"{name} is unknown" for name in sorted(state.keys() - own.keys())]
    faults += [
        f"{name} has shape {tuple(state[name].shape)} for {tuple(own[name].shape)}"
        for name in sorted(own.keys() & state.keys())
        if own[name].shape != state[name].shape
    ]
    if faults:
        raise wrong(
            "folder", "weights that fit the model", f"{folder}, where {'; '.join(faults)}", "save the model again"
        )
    empty.load_state_dict(state)


def bytes_of(tensor: Tensor) -> bytes:
    """What a fingerprint is taken of."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
