"""ShiftPrism: tells when an image classifier is out of its depth, and why.

The names below load on first use, so that `import shiftprism` (and with it `shiftprism --help`) never imports torch.

>>> import shiftprism
>>> sorted(shiftprism.__all__)
['Classifier', 'Outputs', '__version__', 'adapt', 'predict']
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiftprism.classifier import Classifier, adapt, predict
    from shiftprism.outputs import Outputs

__version__ = _version("shiftprism")
__all__ = ["Classifier", "Outputs", "__version__", "adapt", "predict"]

_HOME = {
    "Classifier": "shiftprism.classifier",
    "Outputs": "shiftprism.outputs",
    "adapt": "shiftprism.classifier",
    "predict": "shiftprism.classifier",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'shiftprism' has no attribute {name!r}; its public names are {', '.join(__all__)}"
        )
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
