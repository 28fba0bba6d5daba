"""The detectors that commands work with: a folder, one that comes with the package, or an exported file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from shiftprism._errors import wrong

if TYPE_CHECKING:
    from torch import Tensor

    from shiftprism.classifier import Classifier
    from shiftprism.detector import Detector
    from shiftprism.verdicts import Verdicts

Named = Annotated[
    str,
    typer.Argument(
        metavar="DETECTOR",
        show_default=False,
        help="The folder of a detector, cifar10 (which comes with the package), or an exported .onnx file.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PACKAGE.MODULE:FUNCTION",
        help="For an adapted model: the function that makes its code.",
        show_default=False,
    ),
]
FalseAlarm = Annotated[
    float | None,
    typer.Option(help="The share of in-distribution images that may be flagged. (that of the fit)", show_default=False),
]


class Opened(NamedTuple):
    """What scores images, whatever it was made of."""

    judge: "Callable[[Tensor], Verdicts]"
    prepare: "Callable[[Tensor], Tensor]"
    """One uint8 image (C, H, W) of any size -> what `judge` takes."""
    identity: str
    """The fingerprint and the level: equal ones give equal verdicts."""
    about: str


def check_detector(name: str) -> None:
    """An error where a name is neither a detector's folder nor one in the package."""
    from shiftprism.detector import BUNDLED

    if not (Path(name) / "detector.json").exists() and name not in BUNDLED:
        got = f"{name}, which has no detector.json" if Path(name).is_dir() else f"{name!r}, which is no folder"
        advice = f"make one with shiftprism fit, or name one that comes with the package: {', '.join(BUNDLED)}"
        raise wrong("detector", "the folder of a detector", got, advice)


def open_detector(name: str, model: str | None, device: str, false_alarm: float | None) -> "Detector":
    """The detector of a folder or a name, on its device and at its level."""
    from shiftprism._devices import move
    from shiftprism.detector import Detector

    check_detector(name)
    detector = Detector.load(name, **({"model": model} if model else {}))
    classifier = detector.classifier
    if classifier is None:
        got, advice = f"{name}, which was made from Outputs", "fit one to a model and images"
        raise wrong("detector", "a detector of images", got, advice)
    if false_alarm is not None:
        detector = detector.at(false_alarm, detector.confidence)
    move(classifier, device)
    return detector


def open_judge(name: str, model: str | None, device: str, false_alarm: float | None, compiled: bool = False) -> Opened:
    """What scores images: a detector in torch, or an exported file in onnxruntime."""
    if name.lower().endswith(".onnx"):
        if compiled:
            raise wrong("--compile", "left out for an exported file", name, "onnxruntime has no use for it")
        return _open_exported(Path(name), false_alarm)
    from shiftprism.detector import prepare_for

    detector = open_detector(name, model, device, false_alarm)
    assert detector.classifier is not None
    if compiled:
        compile_network(detector.classifier)
    levels = describe_levels(detector.false_alarm, detector.confidence, detector.by_class)
    identity = f"{detector.fingerprint()[:16]} at {levels}"
    return Opened(detector, prepare_for(detector.classifier), identity, f"{name} at {levels}")


def compile_network(classifier: "Classifier") -> None:
    """Compile it, and forward two images: what the compiler lacks is said here, and not once for each file."""
    import torch

    classifier.compile()
    adapted, size = classifier.adapted, classifier.image_size or (32, 32)
    channels = classifier.preprocessing.channels or len(classifier.mean)
    shape = (channels, *size) if adapted is None else adapted.shape
    try:
        with torch.no_grad():
            classifier.eval().outputs(torch.zeros(2, *shape, dtype=torch.uint8, device=classifier.mean.device))
    except RuntimeError as error:  # torch's own errors of compiling are kinds of it
        got = f"a machine where torch cannot compile ({' '.join(str(error).split()):.100})"
        raise wrong("--compile", "left out without a C++ compiler", got, "install g++, or leave it out") from error


def describe_levels(false_alarm: float, confidence: float | None, by_class: bool) -> str:
    """The promise in a few words.

    >>> describe_levels(0.05, 0.95, False)
    '5% false alarms with a confidence of 95%'
    """
    sure = "" if confidence is None else f" with a confidence of {100 * confidence:g}%"
    return f"{100 * false_alarm:g}% false alarms{sure}{', class by class' if by_class else ''}"


def _open_exported(path: Path, false_alarm: float | None) -> Opened:
    import torch

    from shiftprism.runtime import load

    detector = load(path)
    if false_alarm is not None:
        detector = detector.at(false_alarm, detector.confidence)
    levels = describe_levels(detector.false_alarm, detector.confidence, detector.about.by_class)
    return Opened(
        lambda images: detector(images.numpy()),
        lambda image: torch.from_numpy(detector.prepare(image.numpy())),
        f"{detector.fingerprint[:16]} at {levels}",
        f"{path} at {levels}",
    )
