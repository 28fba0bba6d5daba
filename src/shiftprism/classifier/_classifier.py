"""Classifier = normalisation + backbone + head: images, as uint8 or as floats in [0, 1], in; Outputs out."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism._files import WEIGHTS, fingerprint, load_state, read_json, read_tensors, write_json, write_tensors
from shiftprism.backbones import BACKBONES
from shiftprism.classifier._recipe import ADVICE, FORMAT, ModelFile, check_model_file
from shiftprism.heads import HEADS, Head, Linear, settings_of
from shiftprism.outputs import Outputs
from shiftprism.style import PixelStatistics, attach_taps, channel_statistics, collect_layers


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
        self.pixel_statistics = PixelStatistics()
        # the names of the backbone's layers whose statistics are part of the style
        self.style_layers = attach_taps(backbone)
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32)[:, None, None])
        self.mean: Tensor
        self.std: Tensor
        self.names = tuple(names) or tuple(str(number) for number in range(head.out_features))
        # the names and arguments that `build` was called with; a model made of other code has none
        self.recipe: dict[str, Any] | None = None
        # height and width of the images it was trained on, which `train` sets; None takes any size
        self.image_size: tuple[int, int] | None = None

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
            # in this order: equal seeds give equal backbones, whatever the head
            body = BACKBONES[backbone](channels=channels, **arguments)
            top = HEADS[head](_width(body), len(names))
        classifier = Classifier(body, top, mean or (0.0,) * channels, std or (1.0,) * channels, names)
        classifier.recipe = {"backbone": backbone, "arguments": {"channels": channels, **arguments}, "head": head}
        return classifier

    def normalise(self, images: Tensor) -> Tensor:
        """(x − mean) / std by channel, in the precision of `mean`; uint8 is divided by 255 first."""
        if images.ndim != 4:
            raise wrong("images", "of shape (N, C, H, W)", f"shape {tuple(images.shape)}", "add the batch dimension")
        if images.dtype == torch.uint8:
            images = images.to(self.mean.dtype) / 255
        elif not images.is_floating_point():
            raise wrong("images", "uint8, or floats in [0, 1]", f"{images.dtype}", "convert them with .to(torch.uint8)")
        # one mean may serve all channels of a model made of other code; `build` gives each channel its own
        if images.shape[1] != self.mean.shape[0] and (self.mean.shape[0] > 1 or self.recipe is not None):
            got, advice = f"{images.shape[1]} channels", "this model was trained on images with another number"
            raise wrong("images", f"of {self.mean.shape[0]} channels", got, advice)
        if self.image_size is not None and tuple(images.shape[2:]) != self.image_size:
            got = "{} × {}".format(*images.shape[2:])
            advice = "resize them to what the model was trained on, or set classifier.image_size = None to take any"
            raise wrong("images", "of {} × {} pixels".format(*self.image_size), got, advice)
        return ((images - self.mean) / self.std).to(self.mean.dtype)

    def features(self, images: Tensor) -> Tensor:
        """f, (N, D): the head's input."""
        features: Tensor = self.backbone(self.normalise(images))
        return features

    def outputs(self, images: Tensor) -> Outputs:
        """Everything the classifier says about a batch."""
        with collect_layers() as layers:
            features = self.features(images)
        seen = [layers[name] for name in self.style_layers if name in layers]
        # A layer that sees parts of images as a batch is left out. By .shape[0], as torch.export fixes len(…).
        parts = [channel_statistics(maps) for maps in seen if maps.shape[0] == images.shape[0]]
        pixels = self.pixel_statistics(images)
        style = torch.cat([pixels, *(part.to(pixels) for part in parts)], 1)
        return self.head.outputs(features)._replace(style=style)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits

    def fingerprint(self) -> str:
        """A SHA-256 of weights, normalisation and the head's settings: equal for equal models, on any device."""
        weights, settings = fingerprint(self.state_dict()), settings_of(self.head)
        # most heads have no settings, and the fingerprint of their weights alone, as in earlier versions
        return hashlib.sha256(f"{weights}{settings}".encode()).hexdigest() if settings else weights

    def save(self, folder: str | Path) -> None:
        """Write `weights.safetensors`, then `model.json`, which names the weights it belongs to."""
        folder = Path(folder)
        write_tensors(folder / WEIGHTS, self.state_dict(), {"format": FORMAT})
        about = {"format": FORMAT, "names": list(self.names), "recipe": self.recipe, "image_size": self.image_size}
        about |= {"settings": settings_of(self.head), "weights": fingerprint(self.state_dict())}
        write_json(folder / "model.json", about)

    @staticmethod
    def load(folder: str | Path, backbone: nn.Module | str | None = None, head: Head | None = None) -> "Classifier":
        """The classifier saved in a folder, in evaluation mode.

        One that was not made by `build` needs its `backbone` and `head`, as code. The name of a backbone instead stands
        for that backbone with a linear head. Strict: a tensor that is missing, unknown or of another shape is named.
        """
        folder = Path(folder)
        file = folder / "model.json"
        if not file.exists():
            raise wrong("folder", "a saved model", f"{folder} without model.json", "name a folder of a trained model")
        described = read_json(file, "a saved model", "name a folder that Classifier.save wrote")
        if described.get("format") != FORMAT:
            got = f"{folder} of format {described.get('format')}"
            raise wrong("folder", f"a model of format {FORMAT}", got, "it was written by another version")
        state, _ = read_tensors(folder / WEIGHTS, FORMAT, ADVICE)
        about = check_model_file(described, file, state)
        if about.recipe is not None:
            classifier = _build_again(about, file)
        else:
            classifier = Classifier(*_make_parts(backbone, head, state, len(about.names)), names=about.names)
        classifier.image_size = about.image_size
        # the buffers take the number of channels of the saved ones: `mean` and `std` were not known above
        channels = len(state.get("mean", classifier.mean))
        classifier.mean = classifier.mean.new_zeros(channels, 1, 1)
        classifier.std = classifier.std.new_ones(channels, 1, 1)
        _match_precision(classifier, state)
        load_state(classifier, state, folder / WEIGHTS, ADVICE)
        if len(about.names) != classifier.head.out_features:
            got = f"{len(about.names)} names for {classifier.head.out_features} classes in {file}"
            raise wrong("folder", "a whole saved model", got, ADVICE)
        _restore_settings(classifier.head, about, file)
        if fingerprint(classifier.state_dict()) != about.weights:
            raise wrong("folder", "a whole saved model", f"{folder} with other weights", ADVICE)
        return classifier.eval()


def _build_again(about: ModelFile, file: Path) -> Classifier:
    """The classifier of a recipe; arguments that do not go together are an error that names the file."""
    recipe = about.recipe or {}
    try:
        return Classifier.build(recipe["backbone"], recipe["head"], about.names, **recipe["arguments"])
    except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError) as error:
        raise wrong("folder", "a whole saved model", f"{file} ({error})", ADVICE) from error


def _match_precision(classifier: Classifier, state: dict[str, Tensor]) -> None:
    """Give each tensor the precision of the saved one, and those that no file holds that of the backbone."""
    floats = {name: tensor.dtype for name, tensor in state.items() if tensor.is_floating_point()}
    classifier.to(next((dtype for name, dtype in floats.items() if name.startswith("backbone.")), torch.float32))
    for name, tensor in classifier.state_dict(keep_vars=True).items():
        if name in floats and tensor.is_floating_point():
            tensor.data = tensor.data.to(floats[name])


def _restore_settings(head: Head, about: ModelFile, file: Path) -> None:
    """Give the head the settings it was saved with; those of a file of an earlier version, without any, stay."""
    own = settings_of(head)
    saved = own if about.settings is None else about.settings
    # a whole number serves where the head has a float
    kinds = [{name: float if type(value) is int else type(value) for name, value in s.items()} for s in (saved, own)]
    if kinds[0] != kinds[1]:
        got = f"{file} with settings {saved!r:.60} for a head with {own}"
        raise wrong("folder", "a whole saved model", got, ADVICE)
    for name, value in saved.items():
        setattr(head, name, value)


def _make_parts(
    backbone: nn.Module | str | None, head: Head | None, state: dict[str, Tensor], classes: int
) -> tuple[nn.Module, Head]:
    """The parts of a model without a recipe: as given, or the named backbone with the linear head that was saved."""
    if isinstance(backbone, str):
        body = BACKBONES[choice("backbone", backbone, BACKBONES)](channels=len(state.get("mean", (0,))))
        return body, head or Linear(_width(body), classes, bias="head.bias" in state)
    if backbone is None or head is None:
        got = "a model that was adapted from code"
        raise wrong("backbone", "given, with `head`,", got, "pass both as you built them: Classifier.load(…)")
    return backbone, head


def _width(backbone: nn.Module) -> int:
    return int(getattr(backbone, "out_features"))  # noqa: B009 (nn.Module types attributes as tensors)
