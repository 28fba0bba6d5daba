"""The shapes of answers, for the OpenAPI description. Plain dataclasses: nothing here needs FastAPI."""

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["in-distribution", "covariate", "concept"]


@dataclass
class ProblemDetails:
    """What is wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


@dataclass
class Prediction:
    """What was decided about one image, or why it could not be used."""

    id: str | None
    """The observation's id: report the truth under it. null with an error."""
    label: int | None = None
    name: str | None = None
    confidence: float | None = None
    calibrated: bool | None = None
    style: float | None = None
    concept: float | None = None
    p_covariate: float | None = None
    p_concept: float | None = None
    p_combined: float | None = None
    kind: Kind | None = None
    sentence: str | None = None
    error: ProblemDetails | None = None


@dataclass
class Predictions:
    """One prediction for each image, in the order of the request."""

    request: str
    model: str
    detector: str
    predictions: list[Prediction]


@dataclass
class Truth:
    """The true class of an earlier image: its number, its name, or null for none of the model's classes."""

    id: str
    label: int | str | None


@dataclass
class Truths:
    """Late truth for earlier observations."""

    labels: list[Truth]


@dataclass
class Labelled:
    """How many were stored, and the ids that are not known."""

    stored: int
    unknown: list[str]


@dataclass
class Window:
    """A part of the stream."""

    value: float
    low: float
    high: float
    first: int
    images: int
    covariate: float
    concept: float
    log10_e_covariate: float
    log10_e_concept: float


@dataclass
class Known:
    """Predictions whose truth was reported."""

    count: int
    right: int


@dataclass
class StreamStatus:
    """What the monitor says about a stream, now and over time."""

    model: str
    detector: str
    sentence: str
    level: Literal["ok", "warning", "alarm"]
    kind: str
    since: int | None
    alarm_at: int | None
    active: bool
    trust: bool
    observations: int
    e_covariate: float
    e_concept: float
    threshold: float
    accuracy: dict[str, float] | None
    usual_flagged: float
    flagged: float
    calibrated: bool
    episodes: list[dict[str, Any]]
    resets: list[dict[str, Any]]
    labelled: Known
    history: list[Window]


@dataclass
class ModelDescription:
    """A detector that answers."""

    name: str
    detector: str
    names: list[str]
    channels: int
    height: int | None
    width: int | None
    calibrated: bool
    usual_flagged: float
    problem: str
    """Why its newest file could not be loaded; empty where it could."""
    points: list[list[float]]
    """Style and concept of held-out images, for a picture."""


@dataclass
class ModelList:
    """The names of the models, the default first."""

    models: list[str]


@dataclass
class Health:
    """Whether the process runs."""

    status: str


@dataclass
class Readiness:
    """Whether requests can be answered."""

    ready: bool
    reasons: list[str]
