"""Numbers for Prometheus."""

from typing import Any

from shiftprism._extras import need
from shiftprism.monitor import LEVELS
from shiftprism.verdicts import Verdicts

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """One registry for each service, so that two in one process do not share numbers. Labels have few values."""

    def __init__(self) -> None:
        prometheus = need("prometheus_client", "serve")
        self._text = prometheus.generate_latest
        self.media_type: str = prometheus.CONTENT_TYPE_LATEST
        self.registry = prometheus.CollectorRegistry()

        def make(kind: str, name: str, about: str, labels: tuple[str, ...] = (), **more: Any) -> Any:
            maker = getattr(prometheus, kind)
            return maker(f"shiftprism_{name}", about, labels, registry=self.registry, **more)

        self.requests = make("Counter", "requests", "Requests answered.", ("route", "method", "status"))
        self.seconds = make("Histogram", "request_seconds", "Time to answer.", ("route",), buckets=_SECONDS)
        self.verdicts = make("Counter", "verdicts", "Images answered, by verdict.", ("model", "kind"))
        self.unusable = make("Counter", "unusable_images", "Images that could not be decoded or do not fit.")
        self.batches = make("Histogram", "batch_images", "Images forwarded together.", ("model",), buckets=_SIZES)
        self.queue = make("Gauge", "queue_images", "Images that were accepted and are not answered yet.")
        self.memory = make("Gauge", "request_bytes", "Memory that requests hold.")
        self.restarts = make("Gauge", "decoder_restarts", "Decoders that crashed or took too long and were replaced.")
        self.store_failures = make("Gauge", "store_failures", "Commits that failed.")
        self.leads = make("Gauge", "leads", "1 where this process folds the stream into the monitors.")
        self.observations = make("Gauge", "monitor_observations", "Observations in the monitor.", ("model",))
        self.evidence = make("Gauge", "monitor_e_value", "Evidence of a shift.", ("model", "axis"))
        self.threshold = make("Gauge", "monitor_threshold", "The e-value that raises an alarm.", ("model",))
        self.level = make("Gauge", "monitor_level", "0 ok, 1 warning, 2 alarm.", ("model",))
        self.alarm = make("Gauge", "monitor_alarm", "1 while there is an alarm of this kind.", ("model", "kind"))
        self.accuracy = make("Gauge", "estimated_accuracy", "Of the last 512 observations, without labels.", ("model",))
        self.flagged = make("Gauge", "flagged_share", "Of the last 512 observations.", ("model",))
        self.labelled = make("Gauge", "labelled", "Observations whose truth is known.", ("model", "right"))

    def count_verdicts(self, model: str, verdicts: Verdicts) -> None:
        """After an answer."""
        for kind, count in verdicts.counts().items():
            self.verdicts.labels(model, kind).inc(count)

    def show_status(self, status: dict[str, Any]) -> None:
        """What a monitor says."""
        model = status["model"]
        self.observations.labels(model).set(status["observations"])
        self.threshold.labels(model).set(status["threshold"])
        self.level.labels(model).set(LEVELS.index(status["level"]))
        self.flagged.labels(model).set(status["flagged"])
        for axis in ("covariate", "concept"):
            self.evidence.labels(model, axis).set(status[f"e_{axis}"])
            self.alarm.labels(model, axis).set(status["level"] == "alarm" and status["kind"] == axis)
        if status["accuracy"] is not None:
            self.accuracy.labels(model).set(status["accuracy"]["value"])
        count, right = status["labelled"]["count"], status["labelled"]["right"]
        self.labelled.labels(model, "yes").set(right)
        self.labelled.labels(model, "no").set(count - right)

    def to_bytes(self) -> bytes:
        """In Prometheus' text format."""
        return bytes(self._text(self.registry))
