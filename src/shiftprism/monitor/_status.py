"""What a monitor has to say: level, kind, since when, evidence and estimated accuracy."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from shiftprism.monitor._windows import Estimate

Level = Literal["ok", "warning", "alarm"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "alarm")
WARNING = 10
"""A warning needs this many times less evidence than an alarm."""
_KIND_WORDS = {
    "covariate": "the style of the images has shifted (covariate shift)",
    "concept": "the images show something that the model does not know (concept shift)",
}


@dataclass
class Episode:
    """One change of the stream, from its estimated beginning to its end."""

    since: int
    """The number of the first observation after the change, estimated."""
    alarm_at: int
    """The observation that raised the alarm."""
    kind: str
    """covariate or concept."""
    ended: int | None = None
    """The observation by which the stream looked as usual again; None while it does not."""


@dataclass(frozen=True)
class Status:
    """What is known about a stream now. Observation numbers count from 0. `str` of it is a sentence or two."""

    level: Level
    """"alarm" stays until the operator resets the monitor; "warning": a tenth of the evidence of an alarm."""
    kind: str
    """covariate or concept, for an alarm; "" otherwise."""
    since: int | None
    """The observation with which the change began, estimated, and the one that raised the alarm."""
    alarm_at: int | None
    active: bool
    """Whether the change still lasts."""
    trust: bool
    """False: do not trust predictions, nor the estimated accuracy. The stream shows what the model does not know."""
    observations: int
    e_covariate: float
    """The evidence of either axis now, as an e-value: at `threshold` there is an alarm. At most 1e300 is shown."""
    e_concept: float
    threshold: float
    accuracy: Estimate | None
    """Of the last 512 observations, and their shares of flagged images; None before the first."""
    usual_flagged: float
    """The share that is flagged of images without any shift."""
    episodes: tuple[Episode, ...]
    """The last changes since the last reset, oldest first."""
    resets: int
    """How often an operator reset the monitor."""
    calibrated: bool

    @property
    def flagged(self) -> float:
        """The share of the last 512 observations that was flagged."""
        return self.accuracy.covariate + self.accuracy.concept if self.accuracy else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = asdict(self)
        values["accuracy"] = self.accuracy._asdict() if self.accuracy else None
        return values | {"flagged": self.flagged, "episodes": [asdict(one) for one in self.episodes]}

    def __str__(self) -> str:
        seen = f"{self.observations:,} observation{'' if self.observations == 1 else 's'}"
        share = f"{self.flagged:.1%}".replace("%", " %")
        usual = f"{self.usual_flagged:.1%}".replace("%", " %")
        known = f"{share} of the last ones flagged, {usual} is usual"
        if self.level == "alarm":
            lasts = "" if self.active else ", and has ended"
            text = f"Alarm: {_KIND_WORDS[self.kind]} since about observation {self.since:,}{lasts}; {seen}, {known}."
        elif self.level == "warning":
            text = f"Warning: the stream may be shifting; {seen}, {known}."
        else:
            text = f"The stream looks like the reference; {seen}, {known}."
        if not self.trust:
            return f"{text} Do not trust the predictions."
        if self.accuracy is None or not self.calibrated:
            return text
        return (
            f"{text} Estimated accuracy {self.accuracy.value:.3f} ({self.accuracy.low:.3f}–{self.accuracy.high:.3f})."
        )
