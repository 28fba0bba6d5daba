"""Training: every hyper-parameter in one dataclass, one visible loop, and runs that survive being killed.

The loop's names load on first use: the command line reads the settings for its flags without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftprism.training.settings import PRESETS, Training

if TYPE_CHECKING:
    from shiftprism.training.augmentation import augment, channel_statistics
    from shiftprism.training.loop import Progress, train
    from shiftprism.training.runs import Run, run

__all__ = ["PRESETS", "Progress", "Run", "Training", "augment", "channel_statistics", "run", "train"]

_HOME = {
    "augment": "augmentation",
    "channel_statistics": "augmentation",
    "Progress": "loop",
    "train": "loop",
    "Run": "runs",
    "run": "runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'shiftprism.training' has no attribute {name!r}")
    return getattr(import_module(f"shiftprism.training.{_HOME[name]}"), name)
