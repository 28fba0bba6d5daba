"""A detector to one ONNX file: checked before work begins, compared with torch before the file is kept."""

import copy
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftprism import __version__
from shiftprism._checks import choice, wrong
from shiftprism._exported import KEY, About, Input, add_digest, describe, parse
from shiftprism._extras import need
from shiftprism._files import replacing
from shiftprism.classifier import Classifier, predict
from shiftprism.detector import Detector, divide
from shiftprism.export._compare import Differences, compare
from shiftprism.export._convert import OPSET, join
from shiftprism.export._graphs import (
    OUTPUTS,
    convert_decision,
    convert_network,
    example_image,
    join_preprocessing,
)
from shiftprism.export._precision import INSIDE, PRECISIONS, halve, quantise
from shiftprism.export._refit import SEED, refit, run_network, split_batches
from shiftprism.export._samples import InChannels, Shape, cut_photographs
from shiftprism.outputs import Outputs

Progress = Callable[[str], None]
"""Is called with what is done next."""
_LARGEST = 2**31 - 2**24
"""Bytes of a protobuf file, and some room for its description."""
_FAR = 1e-2
"""Scores that differ by more than this, or by this share of their spread, are of another computation."""
_CALIBRATED = 256
"""Held-out images whose activations give the ranges of int8, spread evenly over the part that is fitted to."""
_COMPARED = 1000
"""Of more images than these, as many are compared on, spread evenly."""


class Report(NamedTuple):
    """What was written."""

    path: Path
    bytes: int
    precision: str
    nodes: int
    input: Input
    compared: str
    """Which images the file was compared with torch on."""
    differences: Differences
    detector: Detector
    """The one that is in the file: another than was given where the precision is."""
    labels_changed: int
    """Of the compared images, those whose class is another than that of the network in float32."""


def export(
    detector: Detector,
    path: str | Path,
    *,
    images: "Tensor | Sequence[Tensor] | None" = None,
    labels: ArrayLike | None = None,
    size: tuple[int, int] | None = None,
    precision: str = "float32",
    progress: Progress | None = None,
) -> Report:
    """Write a detector to one ONNX file, once its verdicts have been compared with those of torch.

    `images`, uint8, are compared on: a tensor (N, C, H, W), or a list of (C, H, W) where the model resizes. Without
    them, parts of two photographs that come with scikit-learn are. A model that takes images of any size needs the
    `size` (height, width) that the file is to take, or `images` of that size.

    Another `precision` than float32 makes another network of the model, whose scores are others. So everything but the
    network is fitted again to `images`, which must be held out, and `labels`, as in `Detector.fit`.
    """
    path = Path(path)
    report = progress or (lambda text: None)
    choice("precision", precision, PRECISIONS)
    classifier = _find_classifier(detector)
    _check(classifier, detector, path)
    shape = _find_shape(classifier, images, size)
    if images is not None and not isinstance(images, Tensor):
        images = InChannels(images, shape.channels)
    if precision != "float32" and (images is None or not len(images)):
        advice = "another precision is another network, and its ranks are taken anew: pass held-out images (--data)"
        raise wrong("images", f"given for precision {precision}", "None", advice)
    need("onnxscript", "onnx")
    need("onnxruntime", "onnx")
    report("converting the network")
    example = example_image(shape.channels, shape.size, shape.resizes)
    network = join_preprocessing(classifier, shape.channels, convert_network(_on_cpu(classifier), example))
    compared, samples = _choose_samples(images, shape)
    outputs = own = _outputs_of(classifier, samples)
    identity = detector.fingerprint()
    if precision != "float32":
        assert images is not None
        report(f"converting it to {precision}")
        if precision == "float16":
            network = halve(network)
        else:
            network = quantise(network, split_batches(_choose_calibration(detector, images, labels)))
        report(f"fitting all but the network again to {len(images)} images")
        session = _open(network.SerializeToString())
        detector, _ = refit(detector, classifier, session, images, labels)
        outputs = run_network(session, samples)
        identity = _identify(precision, network, detector)
    report("converting the decision")
    model = join(network, convert_decision(detector.decision, outputs))
    about = _describe(detector, classifier, shape, precision, identity)
    data = _serialise(model, about)
    report(f"comparing with torch on {compared}")
    session = _open(data)
    differences = compare(detector, outputs, _run(session, samples))
    _refuse_far(differences, detector)
    parse(session.get_modelmeta().custom_metadata_map.get(KEY), path)
    with replacing(path) as beside:
        beside.write_bytes(data)
    changed = int((outputs.predictions != own.predictions).sum())
    nodes = len(model.graph.node)
    return Report(path, len(data), precision, nodes, about.input, compared, differences, detector, changed)


def _choose_calibration(detector: Detector, images: Any, labels: ArrayLike | None) -> list[Tensor]:
    """Images for the ranges of int8, of the part to fit to: those behind the p-values must not shape the network."""
    given = None if labels is None else torch.as_tensor(labels)
    rows = divide(len(images), given, detector.false_alarm, detector.confidence, SEED).fit.tolist()
    return [images[row] for row in _spread(rows)]


def _open(model: bytes) -> Any:
    runtime = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _identify(precision: str, network: Any, detector: Detector) -> str:
    """A fingerprint of a detector whose network is not that of a Classifier: the precision and the graph are in it."""
    graph = hashlib.sha256(network.SerializeToString(deterministic=True)).hexdigest()
    return hashlib.sha256(f"{precision} {graph} {detector.fingerprint()}".encode()).hexdigest()


def _find_classifier(detector: Detector) -> Classifier:
    if detector.classifier is None:
        got = "one that was made from Outputs, without a network"
        raise wrong("detector", "one with a classifier", got, "fit it to a classifier and images")
    return detector.classifier


def _find_shape(classifier: Classifier, images: Any, size: tuple[int, int] | None) -> Shape:
    """The images that the network sees, from the model, from the caller, or from the images."""
    rule = classifier.preprocessing
    if images is not None and len(images) and images[0].dtype != torch.uint8:
        raise wrong("images", "uint8", str(images[0].dtype), "pass images as they are read from files")
    given = None if images is None or not len(images) else tuple(images[0].shape)
    several = len(classifier.mean) if len(classifier.mean) > 1 or classifier.recipe is not None else None
    channels = rule.channels or several or (given[0] if given else None)
    if channels is None:
        raise wrong("images", "given", "None for a model of any number of channels", "pass some images (--data)")
    if rule.size is not None and size not in (None, rule.size):
        got = "{} × {}".format(*size or ())
        raise wrong("size", "left out, as the model has its own, {} × {},".format(*rule.size), got, "leave it out")
    side = rule.size or size or (given[1:] if given and isinstance(images, Tensor) else None)
    if side is None:
        got, advice = "None for a model that takes any", "a file takes one size: pass size=(height, width), or --size"
        raise wrong("size", "given", got, advice)
    shape = Shape(channels, (int(side[0]), int(side[1])), rule.resize is not None)
    if given and not shape.resizes and isinstance(images, Tensor) and given != (shape.channels, *shape.size):
        got = " × ".join(map(str, given))
        want = " × ".join(map(str, (shape.channels, *shape.size)))
        raise wrong("images", f"of {want} (channels, height, width)", got, "pass images as the file is to take them")
    return shape


def _check(classifier: Classifier, detector: Detector, path: Path) -> None:
    """Refuse what cannot be exported before anything is computed."""
    if path.suffix.lower() != ".onnx" or path.is_dir():
        raise wrong("path", "a file that ends in .onnx", str(path), "name such a file")
    tensors = (*classifier.state_dict().values(), *detector.decision.state_dict().values())
    if (size := sum(tensor.numel() * tensor.element_size() for tensor in tensors)) > _LARGEST:
        got = f"{size / 2**30:.1f} GiB"
        raise wrong("detector", "of less than 2 GiB, as any ONNX file of one piece,", got, "take a smaller model")
    narrow = {str(t.dtype) for t in classifier.state_dict().values() if t.is_floating_point() and t.itemsize < 4}
    if narrow:
        advice = "fit a detector to classifier.float(), and export it with precision='float16'"
        raise wrong("detector", "one of a float32 model", f"one in {', '.join(sorted(narrow))}", advice)


def _on_cpu(classifier: Classifier) -> Classifier:
    return classifier.eval() if classifier.mean.device.type == "cpu" else copy.deepcopy(classifier).cpu().eval()


def _choose_samples(images: Any, shape: Shape) -> tuple[str, list[Tensor]]:
    """What to compare on, in words and as images (C, H, W)."""
    if images is None:
        return "parts of two photographs", cut_photographs(shape)
    samples = _spread(images, _COMPARED)
    return f"{len(samples)} of the given images", samples


def _spread(images: Any, most: int = _CALIBRATED) -> list[Any]:
    """At most so many of the images, or of their numbers, spread evenly."""
    count = min(most, len(images))
    return [images[number * len(images) // count] for number in range(count)]


def _outputs_of(classifier: Classifier, samples: list[Tensor]) -> Outputs:
    """What torch says about the samples, in their order."""
    return Outputs.concat([predict(classifier, torch.from_numpy(part))[0] for part in split_batches(samples)])


def _run(session: Any, samples: list[Tensor]) -> dict[str, NDArray[Any]]:
    parts = [session.run(list(OUTPUTS), {"images": part}) for part in split_batches(samples)]
    return {name: np.concatenate(each) for name, each in zip(OUTPUTS, zip(*parts, strict=True), strict=True)}


def _describe(detector: Detector, classifier: Classifier, shape: Shape, precision: str, identity: str) -> About:
    labels, classes = detector.held.label, len(detector.names)
    counts = torch.bincount(labels, minlength=classes).tolist() if detector.by_class else [len(labels)]
    return About(
        shiftprism=__version__,
        opset=OPSET,
        precision=precision,
        names=detector.names,
        calibrated=detector.calibrated,
        concept=detector.concept,
        false_alarm=detector.false_alarm,
        confidence=detector.confidence,
        by_class=detector.by_class,
        held_out=tuple(counts),
        fingerprint=identity,
        input=_describe_input(classifier, shape, precision),
        reference=detector.reference()._replace(detector=identity),
    )


def _describe_input(classifier: Classifier, shape: Shape, precision: str) -> Input:
    normalised = f"divide by 255, normalise each channel{INSIDE[precision]}"
    rule = classifier.preprocessing.resize
    if rule is None:
        return Input(shape.channels, *shape.size, None, normalised)
    sides = f"the shortest side to {rule}" if isinstance(rule, int) else "to {} × {}".format(*rule)
    resized = f"unless it has the size already: resize {sides} pixels (bilinear, antialiased)"
    inside = "{}, crop {} × {} about the centre; {}".format(resized, *shape.size, normalised)
    return Input(shape.channels, None, None, rule if isinstance(rule, int) else None, inside)


def _serialise(model: Any, about: About) -> bytes:
    """The model with its description, and the digest of both."""
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, describe(about)
    data: bytes = model.SerializeToString(deterministic=True)
    return add_digest(data)


def _refuse_far(differences: Differences, detector: Detector) -> None:
    """Keep no file whose verdicts or numbers are not the detector's."""
    largest = differences.largest
    scores = {"style": detector.held.style, "concept": detector.held.concept}
    far = [name for name, held in scores.items() if largest[name] > _FAR * max(float(held.std()), _FAR)]
    if differences.unexplained or far or largest["probabilities"] > _FAR:
        advice = "the file was not kept; please report it with the model"
        raise wrong("detector", "one that onnxruntime computes as torch does", str(differences), advice)
