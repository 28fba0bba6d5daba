"""Training: every hyper-parameter in one dataclass, one visible loop, and runs that survive being killed.

What needs torch loads on first use: the command line reads the settings for its flags without importing it.
"""

from typing import TYPE_CHECKING

from shiftprism._lazy import load_lazily
from shiftprism.training._settings import (
    PRESETS,
    Setup,
    Training,
    read_config,
    read_run_settings,
    read_settings,
    resolve,
)

if TYPE_CHECKING:
    from shiftprism.training._augmentation import augment, channel_statistics
    from shiftprism.training._loop import Progress, train
    from shiftprism.training._pictures import make_mixing_pictures
    from shiftprism.training._pixmix import pixmix
    from shiftprism.training._processes import Processes
    from shiftprism.training._runs import Run, read_result, run, split_held_out

__all__ = [
    "PRESETS",
    "Processes",
    "Progress",
    "Run",
    "Setup",
    "Training",
    "augment",
    "channel_statistics",
    "make_mixing_pictures",
    "pixmix",
    "read_config",
    "read_result",
    "read_run_settings",
    "read_settings",
    "resolve",
    "run",
    "split_held_out",
    "train",
]

__getattr__, __dir__ = load_lazily(
    __name__,
    __all__,
    {
        "shiftprism.training._augmentation": ("augment", "channel_statistics"),
        "shiftprism.training._loop": ("Progress", "train"),
        "shiftprism.training._pictures": ("make_mixing_pictures",),
        "shiftprism.training._pixmix": ("pixmix",),
        "shiftprism.training._processes": ("Processes",),
        "shiftprism.training._runs": ("Run", "read_result", "run", "split_held_out"),
    },
)
