"""One line of the table of scores: what it is, what it reads, and how to get a score that runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.outputs import Outputs
from shiftprism.scores._fitted import Fitted, Setting
from shiftprism.scores._style import MAKE_SHIFTED, Shifted

Score = Callable[[Outputs], Tensor]


@dataclass(frozen=True)
class Entry:
    """A score by name. Where nothing has to be fitted, the entry is called like the score itself."""

    name: str
    implementation: Callable[..., Tensor] | type[Fitted]
    """The function, or the class whose `fit` makes the score."""
    formula: str
    reads: tuple[str, ...]
    """What it reads: features, logits, style, images (a forward of its own) or head (the class weights themselves)."""
    paper: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """The settings this name stands for where they are not the defaults of the implementation."""

    @property
    def fitted(self) -> bool:
        """Whether it is fitted to data before it scores."""
        return isinstance(self.implementation, type)

    @property
    def needs(self) -> tuple[str, ...]:
        """What `fit` cannot do without, of labels, head, reference and shifted; () for most."""
        parameters = signature(self._maker).parameters
        taken = [name for name in _ADVICE if name in parameters]
        return tuple(name for name in taken if parameters[name].default is parameters[name].empty)

    @property
    def ready(self) -> bool:
        """Whether it scores Outputs as they are, without data or a head."""
        return not self.fitted and not self.needs

    def __call__(self, outputs: Outputs, **settings: Any) -> Tensor:
        """The score of these Outputs, where nothing has to be fitted."""
        if isinstance(self.implementation, type):
            got = f"{self.name}, which is fitted to data first"
            advice = f'use SCORES["{self.name}"].fit(outputs, labels, …) and call what it returns'
            raise wrong("score", "one that needs no fit", got, advice)
        if "head" in self.needs and "head" not in settings:
            raise wrong("head", f"given for {self.name}", "none", "pass head=classifier.head")
        return self.implementation(outputs, **settings)

    def fit(
        self,
        outputs: Outputs,
        labels: ArrayLike | None = None,
        *,
        head: Any = None,
        reference: Outputs | None = None,
        shifted: Shifted | None = None,
        **settings: Any,
    ) -> Score:
        """The score, fitted if it needs a fit: the same call for every score, which passes on what this one takes.

        `outputs` and `labels` are ID data, usually those the model was trained on; `reference` is held-out ID data,
        `shifted` are shifted copies of the images of `outputs`, and `head` is the classifier's head. A score that needs
        no fit is returned as it is.
        """
        data = {"labels": labels, "head": head, "reference": reference, "shifted": shifted}
        for name in self.needs:
            if data[name] is None:
                raise wrong(name, f"given for {self.name}", "None", _ADVICE[name])
        parameters = signature(self._maker).parameters
        settings = {**self.settings, **settings}
        settings |= {name: value for name, value in data.items() if name in parameters and value is not None}
        score: Score = self._maker(outputs, **settings) if self.fitted else partial(self._maker, **settings)
        return score

    @property
    def _maker(self) -> Any:
        """The function whose parameters say what the score takes: `fit` of a class, or the score itself."""
        return getattr(self.implementation, "fit", self.implementation)


_ADVICE = {
    "labels": "pass the class numbers of `outputs`",
    "head": "pass head=classifier.head",
    "reference": "pass ID Outputs that are neither in `outputs` nor were trained on",
    "shifted": MAKE_SHIFTED,
}
