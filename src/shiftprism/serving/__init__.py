"""HTTP on an exported detector: predictions with their verdicts, late labels, the monitor's status, a page for people.

The names load on first use: the processes that decode images import this package too, and need none of it.
"""

from typing import TYPE_CHECKING

from shiftprism._lazy import load_lazily as _load_lazily

if TYPE_CHECKING:
    from shiftprism.serving._app import create_app
    from shiftprism.serving._guard import JsonLines
    from shiftprism.serving._models import Detector, load_model
    from shiftprism.serving._server import make_server
    from shiftprism.serving._service import Service
    from shiftprism.serving._settings import Settings

__all__ = ["Detector", "JsonLines", "Service", "Settings", "create_app", "load_model", "make_server"]

__getattr__, __dir__ = _load_lazily(
    __name__,
    __all__,
    {
        "shiftprism.serving._app": ("create_app",),
        "shiftprism.serving._guard": ("JsonLines",),
        "shiftprism.serving._models": ("Detector", "load_model"),
        "shiftprism.serving._server": ("make_server",),
        "shiftprism.serving._service": ("Service",),
        "shiftprism.serving._settings": ("Settings",),
    },
)
