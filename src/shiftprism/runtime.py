"""An exported detector, run with onnxruntime and NumPy alone: nothing here imports torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftprism._errors import wrong
from shiftprism._exported import KEY, About, Input, parse, read_checked
from shiftprism._extras import need
from shiftprism._levels import find_cuts
from shiftprism.verdicts import KINDS, Reference, Verdicts

__all__ = ["ExportedDetector", "Input", "load"]

_BATCH = 128
"""Images that go through at a time: the verdict on an image depends on no other, and memory stays bounded."""
_MOST_PIXELS = 1 << 26
"""An image that would be resized to more pixels than these is refused, as in torch."""
_LUMA = (0.299, 0.587, 0.114)


def load(
    path: str | Path, *, threads: int | None = None, providers: Sequence[str] = ("CPUExecutionProvider",)
) -> "ExportedDetector":
    """The detector in a file that `shiftprism export` wrote, checked byte by byte.

    `threads` is how many one call computes with; by default as many as there are cores. A digest guards against
    damage, not against malice: load files from people you trust.
    """
    path = Path(path)
    data = read_checked(path)
    runtime = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = runtime.InferenceSession(data, options, providers=list(providers))
    except Exception as error:  # onnxruntime's own classes are private
        got = f"{path}, which onnxruntime {runtime.__version__} cannot open ({str(error).splitlines()[0][:200]})"
        raise wrong("path", "a file that this onnxruntime reads", got, "install onnxruntime 1.20 or newer") from error
    return ExportedDetector(session, parse(session.get_modelmeta().custom_metadata_map.get(KEY), path))


class ExportedDetector:
    """Decides about images as the `Detector` does that it was exported from. Several threads may call it at once."""

    def __init__(self, session: Any, about: About, cuts: "NDArray[np.float64] | None" = None) -> None:
        """`load` is the usual way. `cuts`, () or (K,), replace the level that is in the file."""
        self.session, self.about = session, about
        self._cuts = cuts
        self._outputs = [output.name for output in session.get_outputs()]

    @property
    def names(self) -> tuple[str, ...]:
        """The class names."""
        return self.about.names

    @property
    def input(self) -> Input:
        """The images it takes, and what is done to them inside."""
        return self.about.input

    @property
    def size(self) -> tuple[int, int | None, int | None]:
        """Channels, height and width of the images; None where any is taken."""
        return self.input.channels, self.input.height, self.input.width

    @property
    def fingerprint(self) -> str:
        """Of the detector; equal for equal ones, in torch and here. The level is no part of it."""
        return self.about.fingerprint

    @property
    def reference(self) -> Reference:
        """What a monitor starts from. The share that is flagged is that at the level of the file."""
        return self.about.reference

    @property
    def calibrated(self) -> bool:
        """Whether the confidence is calibrated."""
        return self.about.calibrated

    @property
    def false_alarm(self) -> float:
        """The share of in-distribution images that may be flagged."""
        return self.about.false_alarm

    @property
    def confidence(self) -> float | None:
        """The probability with which the level holds for this very detector; None where it holds on average."""
        return self.about.confidence

    def __call__(self, images: ArrayLike, batch: int = _BATCH) -> Verdicts:
        """The verdicts on uint8 images (N, C, H, W), `batch` at a time."""
        arrays = self.run(images, batch)
        label = arrays["label"]
        confidence = np.take_along_axis(arrays["probabilities"], label[:, None], 1)[:, 0]
        numbers = {name: arrays[name] for name in ("style", "concept", "p_covariate", "p_concept", "p_combined")}
        kind = np.array(KINDS)[arrays["kind"]]
        return Verdicts(
            label=label, confidence=confidence, kind=kind, names=self.names, calibrated=self.calibrated, **numbers
        )

    def run(self, images: ArrayLike, batch: int = _BATCH) -> dict[str, NDArray[Any]]:
        """Every output of the file by name: those of a verdict, and `probabilities`, `g`, `h` and `u` beside them."""
        array = self._check(images)
        if batch < 1:
            raise wrong("batch", "1 or more", batch, "leave it out for the usual number")
        starts = range(0, len(array), batch)
        parts = [self.session.run(None, {"images": array[start : start + batch]}) for start in starts]
        arrays = dict(zip(self._outputs, (np.concatenate(each) for each in zip(*parts, strict=True)), strict=True))
        if self._cuts is not None:
            cut = self._cuts[arrays["label"]] if self.about.by_class else self._cuts
            alarm, shifted = arrays["p_combined"] <= cut, arrays["p_covariate"] <= cut
            arrays["kind"] = np.where(alarm, np.where(shifted, 1, 2), 0)
        return arrays

    def at(self, false_alarm: float | None = None, confidence: float | None = None) -> "ExportedDetector":
        """The same detector at another level; nothing is loaded again. `confidence` is not taken over."""
        level = self.false_alarm if false_alarm is None else false_alarm
        names = self.names if self.about.by_class else None
        cuts = np.array(find_cuts(list(self.about.held_out), level, confidence, names))
        about = self.about._replace(false_alarm=level, confidence=confidence)
        return ExportedDetector(self.session, about, cuts if self.about.by_class else cuts[0])

    def prepare(self, image: ArrayLike) -> NDArray[np.uint8]:
        """One uint8 image (C, H, W), grey or RGB, in the channels that the file takes; its size stays.

        Grey is repeated. RGB becomes Y = .299 R + .587 G + .114 B, rounded.
        """
        array = np.asarray(image)
        if array.dtype != np.uint8 or array.ndim != 3:
            got = f"{array.dtype} of shape {array.shape}"
            raise wrong("image", "uint8 of shape (C, H, W)", got, "pass one image as it is read from a file")
        channels = self.input.channels
        if len(array) == 1 and channels == 3:
            return np.repeat(array, 3, 0)
        if len(array) == 3 and channels == 1:
            return np.rint(np.tensordot(_LUMA, array, 1))[None].astype(np.uint8)
        return array

    def _check(self, images: ArrayLike) -> NDArray[np.uint8]:
        array = np.asarray(images)
        sizes = " × ".join(str(side or "any") for side in self.size)
        got = f"{array.dtype} of shape {array.shape}"
        if array.dtype != np.uint8:
            raise wrong("images", "uint8", got, "pass images as they are read from files, before any normalisation")
        if array.ndim != 4:
            raise wrong("images", "of shape (N, C, H, W)", got, "add the batch dimension")
        if not len(array):
            raise wrong("images", "non-empty", got, "pass at least one image")
        if any(want not in (None, have) for want, have in zip(self.size, array.shape[1:], strict=True)):
            raise wrong("images", f"of {sizes} (channels, height, width)", got, "convert or resize them first")
        if 0 in array.shape:
            raise wrong("images", "of at least one pixel", got, "leave empty images out")
        if self.input.shortest is not None:
            low, high = sorted(array.shape[2:])
            if self.input.shortest**2 * high // low > _MOST_PIXELS:
                raise wrong("images", "less long and narrow", got, "crop them first")
        return np.ascontiguousarray(array)

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", confidence={self.confidence:g}"
        level = f"false_alarm={self.false_alarm:g}{sure}{', by_class' if self.about.by_class else ''}"
        return f"ExportedDetector({len(self.names)} classes, {self.about.precision}, {level})"
