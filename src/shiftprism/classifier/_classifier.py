"""Classifier = normalisation + backbone + head: images, as uint8 or as floats in [0, 1], in; Outputs out."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftprism._checks import choice, wrong
from shiftprism._files import WEIGHTS, fingerprint, load_state, read_json, read_tensors, write_json, write_tensors
from shiftprism._imports import import_named
from shiftprism.backbones import BACKBONES
from shiftprism.classifier._headless import Adapted, Headless, probe_image
from shiftprism.classifier._preprocessing import Preprocessing, to_floats
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
        preprocessing: Preprocessing | None = None,
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
        if names and (len(names) != head.out_features or len(set(names)) != len(names)):
            got = f"{len(names)} names, {len(set(names))} of them different"
            raise wrong("names", f"{head.out_features} different ones", got, "pass one name for each class")
        self.names = tuple(names) or tuple(str(number) for number in range(head.out_features))
        # the names and arguments that `build` was called with; a model made of other code has none
        self.recipe: dict[str, Any] | None = None
        self.preprocessing = preprocessing or Preprocessing()
        # how `adapt` made it from a model of other code
        self.adapted: Adapted | None = None

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

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the images that the backbone sees; None takes any size. `train` sets it."""
        return self.preprocessing.size

    @image_size.setter
    def image_size(self, size: tuple[int, int] | None) -> None:
        self.preprocessing = replace(self.preprocessing, size=size)

    def prepare(self, image: Tensor) -> Tensor:
        """One image (C, H, W) of any size, uint8 or in [0, 1], as the model sees it before it normalises: in floats.

        It is resized and cropped by `preprocessing`, and grey or RGB as the model needs it. Loaders call this, so that
        images of different sizes fit into one batch; `outputs` of the result and of the image itself are the same.

        >>> rule = Preprocessing(size=(8, 8), resize=8, channels=1)
        >>> classifier = Classifier.build("digits", "vanilla", names=("cat", "dog"), channels=1)
        >>> classifier.preprocessing = rule
        >>> classifier.prepare(torch.zeros(3, 40, 30, dtype=torch.uint8)).shape
        torch.Size([1, 8, 8])
        """
        if image.ndim != 3:
            raise wrong("image", "of shape (C, H, W)", f"shape {tuple(image.shape)}", "prepare one image at a time")
        _check_type(image)
        floats = to_floats(self.preprocessing.apply(image[None]))
        floats = self.preprocessing.match_channels(floats[0])[None]
        self._check_shape(floats)
        return floats[0]

    def normalise(self, images: Tensor) -> Tensor:
        """(x − mean) / std by channel, of uint8 divided by 255; in float32 at least, then in the precision of `mean`.

        Images of another size than the model's are resized and cropped before, where `preprocessing` has a rule.
        """
        images = self._match_size(images)
        if images.dtype == torch.uint8:
            # not in half precision, which would make another image of it than floats are
            images = images.to(torch.promote_types(self.mean.dtype, torch.float32)) / 255
        self._check_shape(images)
        return ((images - self.mean) / self.std).to(self.mean.dtype)

    def _match_size(self, images: Tensor) -> Tensor:
        if images.ndim != 4:
            raise wrong("images", "of shape (N, C, H, W)", f"shape {tuple(images.shape)}", "add the batch dimension")
        _check_type(images)
        return self.preprocessing.apply(images)

    def _check_shape(self, images: Tensor) -> None:
        # one mean may serve all channels of a model made of other code; `build` gives each channel its own
        several = self.mean.shape[0] if self.mean.shape[0] > 1 or self.recipe is not None else None
        channels = self.preprocessing.channels or several
        if channels not in (None, images.shape[1]):
            got, advice = f"{images.shape[1]} channels", "this model was trained on images with another number"
            raise wrong("images", f"of {channels} channels", got, advice)
        if self.image_size is not None and tuple(images.shape[2:]) != self.image_size:
            got = "{} × {}".format(*images.shape[2:])
            advice = "resize them to what the model was trained on, give the model a resize rule as its "
            advice += "classifier.preprocessing, or set classifier.image_size = None to take any"
            raise wrong("images", "of {} × {} pixels".format(*self.image_size), got, advice)

    def features(self, images: Tensor) -> Tensor:
        """f, (N, D): the head's input."""
        features: Tensor = self.backbone(self.normalise(images))
        return features

    def outputs(self, images: Tensor) -> Outputs:
        """Everything the classifier says about a batch; style is that of the images after resize and crop."""
        images = self._match_size(images)
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

    def compile(self, *arguments: Any, **settings: Any) -> None:
        """Compile the backbone, in place, by torch.compile with these settings; everything else stays as it is.

        The first images of a shape wait for the compiler. Names, files and fingerprint do not change, and numbers
        only by the rounding of another order. `torch.nn.Module.compile` would compile `forward` alone.
        """
        self.backbone.compile(*arguments, **settings)

    def fingerprint(self) -> str:
        """A SHA-256 of weights, normalisation, resize rule and settings of the head: equal for equal models."""
        weights, settings = fingerprint(self.state_dict()), settings_of(self.head)
        # Most heads have no settings, and most models no resize rule: they have the fingerprint of their weights alone,
        # as in earlier versions. Without such a rule no size changes what the model says of an image it takes.
        rule = self.preprocessing if self.preprocessing.resize is not None else ""
        about = f"{settings or ''}{rule}"
        return hashlib.sha256(f"{weights}{about}".encode()).hexdigest() if about else weights

    def save(self, folder: str | Path) -> None:
        """Write `weights.safetensors`, then `model.json`, which names the weights it belongs to."""
        folder = Path(folder)
        write_tensors(folder / WEIGHTS, _separate(self.state_dict()), {"format": FORMAT})
        about = {"format": FORMAT, "names": list(self.names), "recipe": self.recipe}
        about |= {"preprocessing": asdict(self.preprocessing)}
        if self.adapted is not None:
            about["adapted"] = self.adapted._replace(logits=_answer_probe(self, self.adapted))._asdict()
        about |= {"settings": settings_of(self.head), "weights": fingerprint(self.state_dict())}
        write_json(folder / "model.json", about)

    @staticmethod
    def load(
        folder: str | Path,
        backbone: nn.Module | str | None = None,
        head: Head | None = None,
        model: "str | Callable[[], nn.Module] | None" = None,
    ) -> "Classifier":
        """The classifier saved in a folder, in evaluation mode.

        One that was adapted needs its code: `model`, a function without arguments that returns the bare model as it was
        given to `adapt`, or a Classifier; or its name, "package.module:function", which is imported because it is
        passed. Nothing that a file names is ever imported. A Classifier built by hand needs its `backbone` and `head`;
        the name of a backbone instead stands for that backbone with a linear head. Strict: a tensor that is missing,
        unknown or of another shape is named.
        """
        folder = Path(folder)
        about, state = _read_folder(folder)
        file = folder / "model.json"
        if about.recipe is not None:
            classifier = _build_again(about, file)
        elif model is not None:
            classifier = Classifier(*_parts_of_model(model, about, state))
        elif about.adapted is not None and (backbone is None or isinstance(backbone, str)):
            made = f", made by {about.adapted.factory}" if about.adapted.factory else ""
            advice = "pass the function that makes its code: model=make, or --model package.module:make"
            raise wrong("model", "given", f"nothing for {folder}, which was adapted from code{made}", advice)
        else:
            classifier = Classifier(*_make_parts(backbone, head, state, len(about.names), folder))
        if len(about.names) != classifier.head.out_features:
            got = f"{len(about.names)} names for {classifier.head.out_features} classes in {file}"
            raise wrong("folder", "a whole saved model", got, ADVICE)
        classifier.names = about.names
        classifier.preprocessing, classifier.adapted = about.preprocessing, about.adapted
        # the buffers take the number of channels of the saved ones: `mean` and `std` were not known above
        channels = len(state.get("mean", classifier.mean))
        classifier.mean = classifier.mean.new_zeros(channels, 1, 1)
        classifier.std = classifier.std.new_ones(channels, 1, 1)
        _match_precision(classifier, state)
        load_state(classifier, state, folder / WEIGHTS, ADVICE)
        _restore_settings(classifier.head, about, file)
        if fingerprint(classifier.state_dict()) != about.weights:
            raise wrong("folder", "a whole saved model", f"{folder} with other weights", ADVICE)
        _check_probe(classifier.eval())
        return classifier


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same on the CPU, each in memory of its own: a model may use one layer in two places, and no file says so."""
    taken: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu()
        place = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if place in taken else tensor
        taken.add(place)
    return separate


def _read_folder(folder: Path) -> tuple[ModelFile, dict[str, Tensor]]:
    """What `model.json` says, checked, and the tensors."""
    if folder.suffix == ".pt2" or (folder.suffix in (".pt", ".pth") and folder.is_file()):
        got = f"{folder}, which cannot be opened without running code of the file"
        advice = "load it where you trust it, adapt(model, example, factory=…) and save the Classifier"
        raise wrong("folder", "a folder that Classifier.save wrote", got, advice)
    file = folder / "model.json"
    if not file.exists():
        raise wrong("folder", "a saved model", f"{folder} without model.json", "name a folder of a trained model")
    described = read_json(file, "a saved model", "name a folder that Classifier.save wrote")
    if described.get("format") != FORMAT:
        got = f"{folder} of format {described.get('format')}"
        raise wrong("folder", f"a model of format {FORMAT}", got, "it was written by another version")
    state, _ = read_tensors(folder / WEIGHTS, FORMAT, ADVICE)
    return check_model_file(described, file, state), state


def _parts_of_model(
    model: "str | Callable[[], nn.Module]", about: ModelFile, state: dict[str, Tensor]
) -> tuple[nn.Module, Head]:
    """The parts of a saved model, made by the code that the caller passed."""
    make = import_named("model", model) if isinstance(model, str) else model
    try:
        made = make()
    except Exception as error:  # it is a user's program: it may raise anything
        got = f"{model}, which raised {type(error).__name__}: {' '.join(str(error).split())}"
        raise wrong(
            "model", "a function without arguments that makes a model", got, "call it yourself first"
        ) from error
    if isinstance(made, Classifier):
        return made.backbone, made.head
    cuts = () if about.adapted is None else about.adapted.cuts
    expected = f"a function that returns {'the model that was adapted' if cuts else 'a Classifier'}"
    if not isinstance(made, nn.Module) or not cuts:
        raise wrong("model", expected, f"one that returns a {type(made).__name__}", "pass the one it was saved from")
    modules = dict(made.named_modules())
    if missing := [cut.layer for cut in cuts if cut.layer not in modules]:
        got = f"one that returns a {type(made).__name__} without the layer {missing[0]!r}"
        raise wrong("model", expected, got, "pass the one it was saved from")
    last = modules[cuts[0].layer]
    # a head of other sizes than the saved one is found when the weights are loaded
    width = state["head.weight"].shape[-1] if "head.weight" in state else 1
    head = last if isinstance(last, Head) else Linear(width, len(about.names), bias="head.bias" in state)
    return Headless(made, cuts, len(about.names)), head


def _answer_probe(classifier: Classifier, adapted: Adapted) -> tuple[float, ...]:
    """The logits of the probe image; none where they are not finite."""
    training = classifier.training
    with torch.no_grad():
        logits = classifier.eval()(probe_image(adapted.shape).to(classifier.mean.device))[0].double().cpu()
    classifier.train(training)
    return tuple(float(f"{value:.6g}") for value in logits.tolist()) if bool(logits.isfinite().all()) else ()


def _check_probe(classifier: Classifier) -> None:
    """Refuse code that has the same tensors as the saved model and computes something else."""
    if classifier.adapted is None or not classifier.adapted.logits:
        return
    saved, found = (
        torch.tensor(logits) for logits in (classifier.adapted.logits, _answer_probe(classifier, classifier.adapted))
    )
    # far above what devices and versions differ by
    if found.shape != saved.shape or float((saved - found).abs().max()) > 0.02 * float(saved.abs().max()) + 1e-3:
        got = "code that gives other logits with the same weights"
        raise wrong("model", "the code that was adapted", got, "pass the function and the versions it was saved with")


def _check_type(images: Tensor) -> None:
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise wrong("images", "uint8, or floats in [0, 1]", f"{images.dtype}", "convert them with .to(torch.uint8)")


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
    backbone: nn.Module | str | None, head: Head | None, state: dict[str, Tensor], classes: int, folder: Path
) -> tuple[nn.Module, Head]:
    """The parts of a model without a recipe: as given, or the named backbone with the linear head that was saved."""
    if isinstance(backbone, str):
        body = BACKBONES[choice("backbone", backbone, BACKBONES)](channels=len(state.get("mean", (0,))))
        return body, head or Linear(_width(body), classes, bias="head.bias" in state)
    if backbone is None or head is None:
        got = f"{folder}, whose model.json has no recipe"
        advice = "load it in Python with the backbone and head that it was built of: Classifier.load(folder, …)"
        raise wrong("folder", "a model that can be built again", got, advice)
    return backbone, head


def _width(backbone: nn.Module) -> int:
    return int(getattr(backbone, "out_features"))  # noqa: B009 (nn.Module types attributes as tensors)
