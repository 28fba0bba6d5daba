"""Outputs: what a classifier says about a batch, or about a whole data set.

Every score, calibrator, threshold and figure reads this one type, so an image is forwarded once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism._checks import finite, wrong
from shiftprism._files import join_tensors, read_tensors, write_tensors

_FORMAT = "shiftprism-outputs-1"
_NO_STYLE = torch.empty(0, 0)
"""Stands for a style that was not given; pytrees pass None as a value of its own."""


class Outputs(NamedTuple):
    """Everything a classifier computes for N inputs, with D features and K classes.

    It is a plain tuple of tensors, so `torch.export`, devices and pytrees take it as it is.

    >>> outputs = Outputs.from_logits(torch.zeros(4, 3))
    >>> outputs
    Outputs(N=4, D=0, K=3)
    >>> outputs.features
    Traceback (most recent call last):
    ...
    ValueError: Expected `outputs` to be made by a classifier, with features, but got one made from logits alone; ...
    """

    features: Tensor
    """(N, D): f, the head's input."""
    norms: Tensor
    """(N,): |f|."""
    similarities: Tensor
    """(N, K): W f / |f| without bias; for a head without class weights its class score before any per-input scale."""
    raw: Tensor
    """(N, K): the linear layer's own output W f + b, before α and β."""
    logits: Tensor
    """(N, K): what the model predicts with."""
    style: Tensor = _NO_STYLE
    """(N, S): statistics of the image and of a few layers; left out, as by heads, they are (N, 0)."""

    @property
    def N(self) -> int:
        """The number of inputs."""
        return len(self[4])

    @property
    def D(self) -> int:
        """The number of features, 0 where there are only logits."""
        return self[0].shape[1]

    @property
    def K(self) -> int:
        """The number of classes."""
        return self[4].shape[1]

    @property
    def S(self) -> int:
        """The number of style statistics, 0 where there are none."""
        return self[5].shape[1]

    @property
    def has_features(self) -> bool:
        """Whether there are features, norms and similarities, or only logits."""
        return self.D > 0

    @property
    def has_style(self) -> bool:
        """Whether a classifier saw the images, or only their features or logits are known."""
        return self.S > 0

    @property
    def predictions(self) -> Tensor:
        """(N,): the class with the largest logit."""
        return self.logits.argmax(1)

    @staticmethod
    def from_logits(logits: Tensor) -> "Outputs":
        """Outputs of logits alone; reading features, norms or similarities from them is an error."""
        if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
            got = (
                f"{logits.dtype} of shape {tuple(logits.shape)}"
                if isinstance(logits, Tensor)
                else type(logits).__name__
            )
            raise wrong("logits", "a floating-point tensor of shape (N, K)", got, "pass one row for each sample")
        absent = logits.new_empty(len(logits), 0)
        return Outputs(absent, absent.sum(1), absent, logits, logits)

    @staticmethod
    def concat(parts: Sequence["Outputs"]) -> "Outputs":
        """The rows of all `parts`, in order."""
        if not parts:
            raise wrong("parts", "non-empty", "no Outputs", "pass at least one")
        for part in parts[1:]:
            if (part.D, part.K, part.S) != (parts[0].D, parts[0].K, parts[0].S):
                got = " beside ".join(f"{each} with S={each.S}" for each in (parts[0], part))
                raise wrong("parts", "of one model", got, "concatenate Outputs with equal D, K and S")
        return Outputs(*(torch.cat(fields) for fields in zip(*parts, strict=True)))

    def rows(self, index: "slice | Tensor | Sequence[int] | Sequence[bool]") -> "Outputs":
        """The chosen rows of every field: a slice, positions, or a mask with one truth value for each row."""
        if isinstance(index, Sequence):
            # an empty list has no type of its own, and means no positions
            index = torch.as_tensor(index) if len(index) else torch.empty(0, dtype=torch.long)
        return Outputs(*(field[index] for field in self))

    def to(self, target: "torch.device | torch.dtype | str") -> "Outputs":
        """Every field on another device or in another precision."""
        return Outputs(*(field.to(target) for field in self))

    def check(self) -> "Outputs":
        """The same Outputs, if their shapes agree and all values are finite; otherwise an error naming the field."""
        self._check_shapes("outputs.", "all fields share N, D and K")
        for name, field in zip(self._fields, self, strict=True):
            finite(f"outputs.{name}", field)
        return self

    def _check_shapes(self, prefix: str, advice: str) -> None:
        fields = dict(zip(self._fields, self, strict=True))
        # A dimension that is not there counts as 0. Logits and features come first, as N, K and D are taken from them.
        (n, k), d = (*fields["logits"].shape, 0, 0)[:2], (*fields["features"].shape, 0, 0)[1]
        shapes = {
            "logits": (n, k),
            "features": (n, d),
            "norms": (n,),
            "similarities": (n, k if d else 0),
            "raw": (n, k),
            "style": (n, (*fields["style"].shape, 0, 0)[1]),
        }
        for name, shape in shapes.items():
            if fields[name].shape != shape:
                raise wrong(f"{prefix}{name}", f"of shape {shape}", f"{tuple(fields[name].shape)}", advice)

    def save(self, path: "str | Path", labels: Tensor | None = None, fingerprint: str = "") -> None:
        """Write one safetensors file, whole or not at all.

        `fingerprint` identifies the weights, the normalisation and the data of these rows; `load` can require it.
        """
        tensors = dict(zip(self._fields, self, strict=True))
        # from_logits uses one tensor for two fields, and safetensors refuses tensors that share memory
        tensors["raw"] = tensors["raw"].clone() if self.raw is self.logits else tensors["raw"]
        tensors["similarities"] = tensors["similarities"].clone()
        tensors["style"] = tensors["style"].clone()
        if labels is not None:
            if labels.shape != (self.N,):
                raise wrong("labels", f"of shape ({self.N},)", f"{tuple(labels.shape)}", "pass one label for each row")
            tensors["labels"] = labels
        write_tensors(Path(path), tensors, {"format": _FORMAT, "fingerprint": fingerprint})

    @staticmethod
    def join_files(parts: "Sequence[Path]", path: "str | Path", fingerprint: str = "") -> None:
        """Write the rows of the files `parts` to one file, as `save` does; they are never all in memory."""
        join_tensors(Path(path), parts, {"format": _FORMAT, "fingerprint": fingerprint})

    @staticmethod
    def load(
        path: "str | Path", fingerprint: str | None = None, *, mapped: bool = False
    ) -> "tuple[Outputs, Tensor | None]":
        """The Outputs in a file and the labels saved with them, or None.

        A file of another format, with other tensors or, where one is given, with another `fingerprint` is refused.
        `mapped` Outputs stay in the file, which may be larger than the memory: `scores.score_rows` and every `fit` read
        some rows at a time. Their values are then not compared with the digest of the file.
        """
        tensors, about = read_tensors(Path(path), _FORMAT, "compute these Outputs again", mapped=mapped)
        labels = tensors.pop("labels", None)
        labels = labels.clone() if labels is not None and mapped else labels  # small, and aligned for the caller
        # files written before there was style
        shape = (*tensors["logits"].shape, 0)[:1] if "logits" in tensors else (0,)
        tensors.setdefault("style", torch.empty(*shape, 0))
        if differing := sorted(tensors.keys() ^ set(Outputs._fields)):
            got = f"{path}, where {', '.join(differing)} is missing or unknown"
            raise wrong("path", "a file with the fields of Outputs", got, "compute these Outputs again")
        if fingerprint is not None and about.get("fingerprint") != fingerprint:
            raise wrong(
                "fingerprint",
                repr(fingerprint),
                f"{about.get('fingerprint')!r} in {path}",
                "these Outputs come from other weights, another normalisation or other data: compute them again",
            )
        outputs = Outputs(**tensors)
        outputs._check_shapes(f"{path}: ", "compute these Outputs again")
        if labels is not None and labels.shape != (outputs.N,):
            got = f"{tuple(labels.shape)}"
            raise wrong(f"{path}: labels", f"of shape ({outputs.N},)", got, "compute these Outputs again")
        return outputs, labels

    def __repr__(self) -> str:
        return f"Outputs(N={self.N}, D={self.D}, K={self.K})"


def read_fields(outputs: Outputs, *names: str) -> tuple[Tensor, ...]:
    """The named fields of Outputs that have rows and finite values; what every score and edit does first.

    >>> read_fields(Outputs.from_logits(torch.zeros(0, 3)), "logits")
    Traceback (most recent call last):
    ...
    ValueError: Expected `outputs` to be non-empty but got no rows; score at least one input.
    """
    if not isinstance(outputs, Outputs):
        raise wrong("outputs", "an Outputs", type(outputs).__name__, "make one with classifier.outputs(images)")
    fields = tuple(getattr(outputs, name) for name in names)
    if torch.compiler.is_compiling():  # while tracing, neither the number of rows nor any value is known
        return fields
    if outputs.N == 0:
        raise wrong("outputs", "non-empty", "no rows", "score at least one input")
    return tuple(finite(f"outputs.{name}", field) for name, field in zip(names, fields, strict=True))


def _require_style() -> property:
    """The sixth field, which can be read only where a classifier has seen the images."""

    def read(outputs: Outputs) -> Tensor:
        if not outputs.has_style:
            raise wrong(
                "outputs",
                "made by a classifier from images, with style,",
                "one without",
                "use classifier.outputs(images) or predict; heads, ensembles and older files have none",
            )
        return outputs[5]

    return property(read, doc="Field 5 of Outputs.")


def _require_features(position: int) -> property:
    """A field that can be read only where there are features, with an error that says why otherwise."""

    def read(outputs: Outputs) -> Tensor:
        if not outputs.has_features:
            raise wrong(
                "outputs",
                "made by a classifier, with features,",
                "one made from logits alone",
                "use shiftprism.adapt(model, example) to get them, or a score or calibrator that reads logits",
            )
        return outputs[position]

    return property(read, doc=f"Field {position} of Outputs.")


# Replaced after the class is made: a NamedTuple cannot declare a field and a property of one name, and a subclass of it
# would no longer be the plain named tuple that pytrees and torch.export know.
for _position, _name in enumerate(("features", "norms", "similarities")):
    setattr(Outputs, _name, _require_features(_position))
Outputs.style = _require_style()  # type: ignore[assignment]


def _fill(
    cls: type[Outputs],
    features: Tensor,
    norms: Tensor,
    similarities: Tensor,
    raw: Tensor,
    logits: Tensor,
    style: Tensor = _NO_STYLE,
) -> Outputs:
    """A head returns five fields, since it sees no image: their style is (N, 0). A slice, which ONNX can express."""
    fields = (features, norms, similarities, raw, logits, logits[:, :0] if style is _NO_STYLE else style)
    return tuple.__new__(cls, fields)


Outputs.__new__ = _fill  # type: ignore[assignment]
