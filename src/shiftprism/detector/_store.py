"""A detector as a folder: model, scores, calibrator, ranks, and `detector.json`, which is written last."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftprism import __version__
from shiftprism._checks import wrong
from shiftprism._files import check_seal, fingerprint, read_json, read_tensors, write_sealed, write_tensors
from shiftprism.calibrators import load as load_calibrator
from shiftprism.classifier import Classifier
from shiftprism.detector._bundled import find_bundled
from shiftprism.detector._decision import Decision, Held, Plain
from shiftprism.detector._detector import Detector
from shiftprism.scores import SCORES, Fitted
from shiftprism.scores import load as load_score
from shiftprism.style import VERSION

FORMAT = 2
"""2 keeps no combined scores: they follow from style and concept."""
ABOUT = "detector.json"
_RANKS = "ranks.safetensors"
_RANKS_FORMAT = "shiftprism-detector-ranks"
_ADVICE = "fit the detector again"


def save(detector: Detector, folder: Path) -> None:
    """Write every part, then the description that names them by their hashes."""
    (folder / ABOUT).unlink(missing_ok=True)  # what is half replaced is no detector
    decision = detector.decision
    if detector.classifier is not None:
        detector.classifier.save(folder / "model")
    decision.covariate.save(folder / "style")
    if isinstance(decision.concept, Fitted):
        decision.concept.save(folder / "concept")
    if decision.calibrator is not None:
        decision.calibrator.save(
            folder / "calibrator", "" if detector.classifier is None else detector.classifier.fingerprint()
        )
    tensors = _rank_tensors(detector)
    write_tensors(folder / _RANKS, tensors, {"format": _RANKS_FORMAT})
    about: dict[str, Any] = {
        "format": FORMAT,
        "shiftprism": __version__,
        "names": list(detector.names),
        "concept": detector.concept,
        "false_alarm": detector.false_alarm,
        "confidence": detector.confidence,
        "by_class": detector.by_class,
        "calibrated": detector.calibrated,
        "model": detector.classifier is not None,
        "precision": precision_of(detector.classifier),
        "style": VERSION,
        "ranks": fingerprint(tensors),
        "fingerprint": detector.fingerprint(),
    }
    write_sealed(folder / ABOUT, about)


def precision_of(classifier: Classifier | None) -> str:
    """The type that the backbone computes in: float32, float16 …; "" without a classifier."""
    if classifier is None:
        return ""
    tensors = (*classifier.backbone.parameters(), *classifier.backbone.buffers())
    found = next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float32)
    return str(found).removeprefix("torch.")


def load(folder: Path, **model: Any) -> Detector:
    """The detector in a folder, or the bundled one of this name; a folder of the user comes first."""
    bundled = None if (folder / ABOUT).exists() else find_bundled(folder)
    if bundled is None:
        return _load(folder, **model)
    detector = _load(bundled)
    if detector.classifier is not None:
        # its weights are stored in half precision and were rounded before it was fitted; it computes in single
        detector.classifier.float()
    return detector


def _load(folder: Path, **model: Any) -> Detector:
    """The detector in a folder, checked as a whole before it is put together."""
    about = read_json(folder / ABOUT, "a saved detector", "name a folder that Detector.save or shiftprism fit wrote")
    _check(about, folder)
    tensors, _ = read_tensors(folder / _RANKS, _RANKS_FORMAT, _ADVICE)
    _check_tensors(tensors, folder)
    classifier = Classifier.load(folder / "model", **model) if about["model"] else None
    concept = about["concept"]
    decision = Decision(
        load_score(folder / "style"),
        Plain(concept) if SCORES[concept].ready else load_score(folder / "concept"),
        load_calibrator(folder / "calibrator") if about["calibrated"] else None,
        (tensors["inside_style"], tensors["inside_concept"]),
        len(about["names"]),
    )
    held = Held(*(tensors[f"held_{name}"] for name in Held._fields))
    if len(held.label) and not 0 <= int(held.label.min()) <= int(held.label.max()) < len(about["names"]):
        raise wrong("folder", "a whole saved detector", f"{folder} with labels of other classes", _ADVICE)
    levels = {name: about[name] for name in ("false_alarm", "confidence", "by_class")}
    detector = Detector(classifier, decision, held, about["names"], concept=concept, **levels)
    if detector.fingerprint() != about["fingerprint"]:
        got = f"{folder}, whose parts are not those it was saved with"
        raise wrong("folder", "a whole saved detector", got, _ADVICE)
    # the level is no part of the fingerprint
    again = "fit it again; another level needs no fit: --false-alarm"
    check_seal(folder / ABOUT, about, "a whole saved detector", again)
    return detector


def _rank_tensors(detector: Detector) -> dict[str, Tensor]:
    decision = detector.decision
    inside = {"inside_style": decision.inside_style.values, "inside_concept": decision.inside_concept.values}
    return inside | {f"held_{name}": tensor for name, tensor in detector.held._asdict().items()}


def _check(about: dict[str, Any], folder: Path) -> None:
    """Refuse a description that is not whole, or of a newer version."""
    version = about.get("format")
    if type(version) is int and version > FORMAT:
        got = f"{folder} of format {version}, written by shiftprism {about.get('shiftprism')}"
        raise wrong("folder", f"a detector of format {FORMAT}", got, "install a newer shiftprism")
    if about.get("style") != VERSION:  # its style was fitted to other statistics of the same images
        got = f"{folder} with {about.get('style', 'an older style')}, written by shiftprism {about.get('shiftprism')}"
        raise wrong("folder", f"a detector with statistics {VERSION}", got, _ADVICE)
    names, level, sure = about.get("names"), about.get("false_alarm"), about.get("confidence")
    faults = {
        "format": version == FORMAT,
        "names": isinstance(names, list) and len(names) > 1 and all(isinstance(name, str) for name in names),
        "concept": isinstance(about.get("concept"), str) and about["concept"] in SCORES,
        "false_alarm": type(level) is float and 0 < level < 1,
        "confidence": ("confidence" in about and sure is None) or (type(sure) is float and 0 < sure < 1),
        "by_class": type(about.get("by_class")) is bool,
        "calibrated": type(about.get("calibrated")) is bool,
        "model": type(about.get("model")) is bool,
        "fingerprint": isinstance(about.get("fingerprint"), str),
    }
    if wrong_keys := [name for name, fine in faults.items() if not fine]:
        got = f"{folder / ABOUT}, where {wrong_keys[0]} is {about.get(wrong_keys[0], 'missing')!r:.40}"
        raise wrong("folder", "a whole saved detector", got, _ADVICE)


def _check_tensors(tensors: dict[str, Tensor], folder: Path) -> None:
    expected = {"inside_style", "inside_concept", *(f"held_{name}" for name in Held._fields)}
    held = [tensor.shape for name, tensor in tensors.items() if name.startswith("held_")]
    if differing := sorted(expected ^ tensors.keys()):
        got = f"{folder / _RANKS}, where {', '.join(differing)} is missing or unknown"
        raise wrong("folder", "a whole saved detector", got, _ADVICE)
    if len(set(held)) != 1 or any(tensor.ndim != 1 or not len(tensor) for tensor in tensors.values()):
        raise wrong("folder", "a whole saved detector", f"{folder / _RANKS} with ranks of other shapes", _ADVICE)
