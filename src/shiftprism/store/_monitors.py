"""Monitors as bytes in a store."""

from pathlib import Path
from tempfile import TemporaryDirectory

from shiftprism.monitor import Monitor
from shiftprism.store._database import StoreError
from shiftprism.store._observations import Observations


def monitor_to_bytes(monitor: Monitor) -> bytes:
    """The file that `Monitor.save` writes: equal for equal monitors."""
    with TemporaryDirectory(prefix="shiftprism-") as folder:
        path = Path(folder) / "monitor.safetensors"
        monitor.save(path)
        return path.read_bytes()


def monitor_from_bytes(state: bytes, detector: str | None = None) -> Monitor:
    """The monitor that `monitor_to_bytes` wrote; it must belong to the detector of this fingerprint."""
    with TemporaryDirectory(prefix="shiftprism-") as folder:
        path = Path(folder) / "monitor.safetensors"
        path.write_bytes(state)
        try:
            return Monitor.load(path, detector)
        except ValueError as error:
            reason = str(error).partition(" but got ")[2].rpartition("; ")[0].replace(str(path), "one")
            raise StoreError(f"the stored state of a monitor is damaged ({reason}); restore a backup") from error


class MonitorFold:
    """Folds observations into a `Monitor`. It remembers the last one, so that the next update need not read it."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Monitor] | None = None

    def update(self, state: bytes, observations: Observations) -> bytes:
        """The state after more observations."""
        monitor = self._load(state)
        monitor.update(observations.verdicts)
        return self._dump(monitor)

    def reset(self, state: bytes, reason: str) -> bytes:
        """The state after an operator's reset."""
        monitor = self._load(state)
        monitor.reset(reason)
        return self._dump(monitor)

    def _load(self, state: bytes) -> Monitor:
        # after a transaction that was undone the remembered monitor is ahead: its bytes differ
        remembered, self._last = self._last, None
        return remembered[1] if remembered is not None and remembered[0] == state else monitor_from_bytes(state)

    def _dump(self, monitor: Monitor) -> bytes:
        state = monitor_to_bytes(monitor)
        self._last = state, monitor
        return state
