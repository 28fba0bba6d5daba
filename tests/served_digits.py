"""A real detector of digits in one ONNX file, made once for every test that serves it: 0 to 6 are known."""

import atexit
import io
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shiftprism.corruptions import corrupt
from shiftprism.detector import Detector
from shiftprism.export import export
from trained import digits, train_on_digits, unseen_digits


@cache
def fit_digits(seed: int = 0) -> Detector:
    """A detector of digits of 8 × 8 pixels."""
    classifier = train_on_digits("alpha-beta")[0]
    held_out = digits("test")
    return Detector.fit(classifier, held_out.images, held_out.labels, concept="u", seed=seed)


@cache
def export_digits(seed: int = 0) -> Path:
    """The file; do not change it."""
    folder = Path(tempfile.mkdtemp(prefix="shiftprism-digits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    export(fit_digits(seed), folder / "digits.onnx")
    return folder / "digits.onnx"


def to_png(image: Any) -> bytes:
    """One uint8 image (1, H, W) as a file."""
    file = io.BytesIO()
    Image.fromarray(np.asarray(image)[0]).save(file, "PNG")
    return file.getvalue()


@cache
def digit_files(kind: str = "known") -> list[bytes]:
    """Known digits (of both splits), blurred ones, or digits that no model has seen, as PNG files."""
    if kind == "unseen":
        return [to_png(image) for image in unseen_digits()]
    images = digits("test").images
    images = corrupt(images, "motion_blur", 5) if kind == "blurred" else images
    return [to_png(image) for image in images]
