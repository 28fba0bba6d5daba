"""What every fitted score is: a final module made by `fit`, whose tensors are buffers and whose settings are plain."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftprism._checks import classes, wrong
from shiftprism._files import WEIGHTS, fingerprint, write_sealed, write_tensors
from shiftprism.outputs import Outputs

FORMAT = "shiftprism-score-2"
Setting = int | float | str


class Fitted(nn.Module, ABC):
    """Outputs in, (N,) out, higher = more in-distribution; made by a class method `fit`, never empty.

    The tensors are buffers, so `.to(device)`, `state_dict` and `torch.export` work; `save` writes them and the settings
    to a folder that `shiftprism.scores.load` reads. A subclass annotates each of its buffers: `bank: Tensor`.
    """

    def __init__(self, tensors: Mapping[str, Tensor], **settings: Setting) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self.settings = settings

    @abstractmethod
    def forward(self, outputs: Outputs) -> Tensor:
        """One number for each input, (N,), in the dtype of the Outputs."""

    def save(self, folder: str | Path) -> None:
        """Write `weights.safetensors`, then `score.json`, which names the weights it belongs to; nothing is pickled."""
        folder, tensors = Path(folder), self.state_dict()
        write_tensors(folder / WEIGHTS, tensors, {"format": FORMAT})
        about = {"format": FORMAT, "score": type(self).__name__, "settings": self.settings}
        write_sealed(folder / "score.json", {**about, "weights": fingerprint(tensors)})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


def widen(tensor: Tensor) -> Tensor:
    """In at least float32: half precision has too few digits, and too small a range, for squares and sums."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def detach_float(tensor: Tensor) -> Tensor:
    """Without its graph and in at least float32: what a fit reads and what its buffers are kept in."""
    return widen(tensor.detach())


def class_numbers(labels: ArrayLike, outputs: Outputs) -> Tensor:
    """The labels as int64 on the device of the Outputs, one for each row and each a class of the model."""
    return torch.from_numpy(classes("labels", labels, outputs.N, outputs.K)).to(outputs[4].device)


def check_width(tensor: Tensor, width: int, what: str = "features") -> Tensor:
    """The same tensor, if it is as wide as the data the score was fitted to."""
    if tensor.shape[1] != width:
        got = f"{tensor.shape[1]} {what}"
        raise wrong("outputs", f"of {width} {what}", got, "score Outputs of the model this was fitted to")
    return tensor


def clamp_before_squaring(tensor: Tensor) -> Tensor:
    """Clamped so that the sum of squares of a row is finite: features far from ID data score low, never NaN."""
    # the sixteenth leaves room for the products and differences of such sums
    most = (torch.finfo(tensor.dtype).max / max(tensor.shape[1], 1)) ** 0.5 / 16
    return tensor.clamp(-most, most)


def subtract_centre(values: Tensor, centre: Tensor, what: str = "features") -> Tensor:
    """x − centre in at least float32, of a size that can be squared."""
    values = widen(check_width(values, len(centre), what))
    return clamp_before_squaring(values - centre.to(values))


def finite_scores(values: Tensor, outputs: Outputs) -> Tensor:
    """In the dtype of the Outputs, where infinities become the largest number of that dtype."""
    dtype = outputs[4].dtype
    limits = torch.finfo(dtype)
    return values.clamp(limits.min, limits.max).to(dtype)


def map_rows(function: Callable[[Tensor], Tensor], tensor: Tensor, rows: int) -> Tensor:
    """function(tensor), computed for `rows` rows at a time, so that its memory is bounded."""
    # while tracing, the number of rows is unknown, so all are taken at once
    if torch.compiler.is_compiling() or len(tensor) <= rows:
        return function(tensor)
    return torch.cat([function(part) for part in tensor.split(rows)])


def score_rows(score: Callable[[Outputs], Tensor], outputs: Outputs, rows: int = 8192) -> Tensor:
    """score(outputs), (N,), computed for `rows` rows at a time: the memory for it does not grow with N.

    For Outputs of any size, above all those that stay in their file: `Outputs.load(path, mapped=True)`. Last digits may
    differ from those of score(outputs), since products of other sizes, or at another place in memory, round otherwise.

    >>> from shiftprism.scores import energy
    >>> outputs = Outputs.from_logits(torch.rand(5, 3))
    >>> torch.equal(score_rows(energy, outputs, rows=2), energy(outputs))
    True
    """
    if not isinstance(rows, int) or rows < 1:
        raise wrong("rows", "a positive whole number", rows, "8192 rows are the default")
    # views: of a mapped file only the fields that the score reads come into memory. No rows are an error of the score.
    starts = range(0, max(outputs.N, 1), rows)
    return torch.cat([score(outputs.rows(slice(start, start + rows))).detach() for start in starts])
