"""Acknowledged observations and the monitors that they feed: SQLite embedded, PostgreSQL for several replicas."""

from shiftprism.store._database import StoreError
from shiftprism.store._export import export
from shiftprism.store._monitors import MonitorFold, monitor_from_bytes, monitor_to_bytes
from shiftprism.store._observations import (
    NO_CLASS,
    Accuracy,
    Fold,
    Observation,
    Observations,
    Stream,
    make_observations,
)
from shiftprism.store._store import Store, open_store

__all__ = [
    "NO_CLASS",
    "Accuracy",
    "Fold",
    "MonitorFold",
    "Observation",
    "Observations",
    "Store",
    "StoreError",
    "Stream",
    "export",
    "make_observations",
    "monitor_from_bytes",
    "monitor_to_bytes",
    "open_store",
]
