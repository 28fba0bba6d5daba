"""Verdicts: what was decided about N images, as NumPy arrays. No torch here: runtime, monitor and service read them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftprism._errors import wrong

KINDS = ("in-distribution", "covariate", "concept")
"""What is told apart: no shift, a shift of style, and something that the model was not trained on."""
_NUMBERS = ("confidence", "style", "concept", "p_covariate", "p_concept", "p_combined")
_ROWS_SHOWN = 20


class Verdict(NamedTuple):
    """What was decided about one image. `str` of it is a sentence.

    >>> print(Verdict("cat", 0.97, 2.1, 5.0, 0.4, 0.8, 0.6, "in-distribution", True))
    cat (97 % confident). The image looks like the data that the model knows (p = 0.6).
    >>> print(Verdict("cat", 0.41, -6.0, 3.0, 0.002, 0.3, 0.004, "covariate", True))
    cat (41 % confident), but the style of the image has shifted: noise, blur, colour or light is unusual (p = 0.002).
    >>> print(Verdict("cat", 0.41, 2.0, -9.0, 0.7, 0.001, 0.004, "concept", False))
    Do not trust cat (score 0.41, uncalibrated): the image shows something that the model does not know (p = 0.001).
    """

    name: str
    """The class that the model predicts."""
    confidence: float
    """Its calibrated probability; the model's own where there is no calibrator."""
    style: float
    """The score of covariate shift, as the next one that of concept shift: higher = more in-distribution."""
    concept: float
    p_covariate: float
    """The share of in-distribution images whose style is as unusual; small = shifted. Likewise the next two."""
    p_concept: float
    p_combined: float
    """Of both scores together: this one raises the alarm."""
    kind: str
    """One of `KINDS`."""
    calibrated: bool

    def __str__(self) -> str:
        sure = f"{self.confidence:.0%} confident".replace("%", " %")
        sure = sure if self.calibrated else f"score {self.confidence:.2f}, uncalibrated"
        if self.kind == "covariate":
            reason = "the style of the image has shifted: noise, blur, colour or light is unusual"
            return f"{self.name} ({sure}), but {reason} (p = {_round(self.p_covariate)})."
        if self.kind == "concept":
            # the alarm is the combination's: it may go off where neither part is rare on its own
            p = min(self.p_concept, self.p_combined)
            reason = "the image shows something that the model does not know"
            return f"Do not trust {self.name} ({sure}): {reason} (p = {_round(p)})."
        reason = "The image looks like the data that the model knows"
        return f"{self.name} ({sure}). {reason} (p = {_round(self.p_combined)})."


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What was decided about N images. It prints as a table; an index gives one `Verdict`, a slice or mask some.

    >>> verdicts = Verdicts(
    ...     label=[1, 0], confidence=[0.9, 0.4], style=[2.0, -7.0], concept=[5.0, 4.0], p_covariate=[0.6, 0.01],
    ...     p_concept=[0.7, 0.5], p_combined=[0.8, 0.02], kind=["in-distribution", "covariate"], names=("cat", "dog"),
    ... )
    >>> print(verdicts)
    class  confidence  kind             p covariate  p concept  p combined
    dog        90.0 %  in-distribution        0.600      0.700       0.800
    cat        40.0 %  covariate              0.010      0.500       0.020
    >>> verdicts[1].name, verdicts[verdicts.kind != "in-distribution"].label.tolist(), verdicts.counts()
    ('cat', [0], {'in-distribution': 1, 'covariate': 1, 'concept': 0})
    """

    label: NDArray[np.int64]
    """(N,): the predicted class."""
    confidence: NDArray[np.float64]
    """(N,): its calibrated probability, or the model's own where `calibrated` is False."""
    style: NDArray[np.float64]
    """(N,): the score of covariate shift; like `concept`, higher = more in-distribution."""
    concept: NDArray[np.float64]
    p_covariate: NDArray[np.float64]
    """(N,): the rank of `style` among held-out images, in (0, 1]; small = shifted. Likewise the next two."""
    p_concept: NDArray[np.float64]
    p_combined: NDArray[np.float64]
    """(N,): of both scores together. The alarm goes off where this is at most the false-alarm rate."""
    kind: NDArray[np.str_]
    """(N,): one of `KINDS`."""
    names: tuple[str, ...] = ()
    """The class names; numbers where there are none."""
    calibrated: bool = True

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen, and lists become arrays here
        set_field(self, "label", np.asarray(self.label, np.int64).reshape(-1))
        for name in _NUMBERS:
            set_field(self, name, np.asarray(getattr(self, name), np.float64).reshape(-1))
        set_field(self, "kind", np.asarray(self.kind, f"<U{max(map(len, KINDS))}").reshape(-1))
        for name in (*_NUMBERS, "kind"):
            if len(getattr(self, name)) != len(self):
                got = f"{len(getattr(self, name))} values beside {len(self)} labels"
                raise wrong(name, "one value for each image", got, "pass arrays of one length")
        if unknown := sorted(set(self.kind.tolist()) - set(KINDS)):
            raise wrong("kind", "one of " + ", ".join(KINDS), ", ".join(unknown), "correct it")

    def __len__(self) -> int:
        return len(self.label)

    @overload
    def __getitem__(self, index: "int | np.integer[Any]") -> Verdict: ...
    @overload
    def __getitem__(self, index: "slice | NDArray[Any] | Sequence[int]") -> "Verdicts": ...
    def __getitem__(self, index: Any) -> "Verdict | Verdicts":
        if isinstance(index, int | np.integer):
            numbers = {name: float(getattr(self, name)[index]) for name in _NUMBERS}
            name, kind = self.name_of(int(self.label[index])), str(self.kind[index])
            return Verdict(name=name, kind=kind, calibrated=self.calibrated, **numbers)
        return replace(self, **{name: getattr(self, name)[index] for name in ARRAYS})

    def __iter__(self) -> Iterator[Verdict]:
        return (self[number] for number in range(len(self)))

    def name_of(self, label: int) -> str:
        """The name of a class."""
        return self.names[label] if 0 <= label < len(self.names) else str(label)

    def counts(self) -> dict[str, int]:
        """How many images are of each kind."""
        return {kind: int((self.kind == kind).sum()) for kind in KINDS}

    def to_dicts(self) -> list[dict[str, Any]]:
        """One plain dictionary for each image, ready for JSON, with the class name beside its number."""
        return [{"label": int(label), **each._asdict()} for label, each in zip(self.label, self, strict=True)]

    def control_false_discoveries(self, rate: float) -> "Verdicts":
        """The same images as one batch: at most `rate` of those flagged are in-distribution, on average.

        Benjamini and Hochberg's rule on p_combined. It holds for ranks that share one reference, since those are
        positively dependent (Bates et al. 2023). The kind of a flagged image is decided at the p-value where the rule
        stops.
        """
        flagged = reject_by_false_discovery(self.p_combined, rate)
        cut = self.p_combined[flagged].max(initial=0.0)
        kind = np.where(flagged, np.where(self.p_covariate <= cut, KINDS[1], KINDS[2]), KINDS[0])
        return replace(self, kind=kind)

    @staticmethod
    def concat(parts: Sequence["Verdicts"]) -> "Verdicts":
        """The rows of all `parts`, in order."""
        if not parts:
            raise wrong("parts", "non-empty", "no Verdicts", "pass at least one")
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
        return replace(parts[0], **joined)

    def __str__(self) -> str:
        titles = ("class", "confidence" if self.calibrated else "uncalibrated", "kind")
        rows: list[tuple[str, ...]] = [(*titles, "p covariate", "p concept", "p combined")]
        for one in self[:_ROWS_SHOWN]:
            ranks = (f"{p:.3f}" for p in (one.p_covariate, one.p_concept, one.p_combined))
            rows.append((one.name, f"{one.confidence:.1%}".replace("%", " %"), one.kind, *ranks))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        left = (0, 2)  # words are set left, numbers right
        lines = [
            "  ".join(
                f"{cell:<{width}}" if number in left else f"{cell:>{width}}"
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        more = len(self) - _ROWS_SHOWN
        return "\n".join([*lines, f"… and {more} more"] if more > 0 else lines)

    def __repr__(self) -> str:
        return f"Verdicts(N={len(self)}, {', '.join(f'{kind}: {count}' for kind, count in self.counts().items())})"


ARRAYS = tuple(each.name for each in fields(Verdicts) if each.name not in ("names", "calibrated"))
"""The names of the arrays of `Verdicts`, in order."""


class Reference(NamedTuple):
    """What a monitor starts from: how the scores of held-out images are distributed. See `Detector.reference`.

    Scores are counted in bins: bin b holds the scores s with `edges[b − 1] < s ≤ edges[b]`. The edges come from other
    images than the counts, so that the counted images and a stream of new ones are exchangeable.
    """

    detector: str
    """The fingerprint of the detector."""
    names: tuple[str, ...]
    """The K class names."""
    style_edges: NDArray[np.float64]
    """(B − 1,): ascending."""
    concept_edges: NDArray[np.float64]
    style_counts: NDArray[np.int64]
    """(K, B): of the held-out images by predicted class; the sum over classes counts all."""
    concept_counts: NDArray[np.int64]
    points: NDArray[np.float64]
    """(P, 2): style and concept of at most 500 held-out images, for a picture."""
    flagged: float
    """The share of held-out images that the detector flags."""
    confidence: float
    """The mean confidence of the held-out images."""
    calibrated: bool


def reject_by_false_discovery(p_values: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """Benjamini and Hochberg's rule: which of the p-values to reject so that the false discovery rate is ≤ `rate`.

    Reject the k smallest, k the largest number with p_(k) ≤ k · rate / m.

    >>> reject_by_false_discovery([0.01, 0.5, 0.02, 0.04], 0.05).tolist()
    [True, False, True, False]
    """
    if not 0 < rate < 1:
        raise wrong("rate", "between 0 and 1", rate, "0.05 is usual")
    p = np.asarray(p_values, np.float64).reshape(-1)
    ordered = np.sort(p)
    below = np.flatnonzero(ordered <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    return p <= ordered[below[-1]] if len(below) else np.zeros(len(p), bool)


def _round(p: float) -> str:
    """Two digits that count: 0.6, 0.042, 0.00031."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.1e}"
