"""ShiftPrism: tells when an image classifier is out of its depth, and why.

The names below load on first use, so that `import shiftprism` (and with it `shiftprism --help`) never imports torch.

>>> import shiftprism
>>> sorted(shiftprism.__all__)
['Classifier', 'Detector', 'Outputs', '__version__', 'adapt', 'predict']
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from shiftprism._lazy import load_lazily as _load_lazily

if TYPE_CHECKING:
    from shiftprism.classifier import Classifier, adapt, predict
    from shiftprism.detector import Detector
    from shiftprism.outputs import Outputs

__version__ = _version("shiftprism")
__all__ = ["Classifier", "Detector", "Outputs", "__version__", "adapt", "predict"]

__getattr__, __dir__ = _load_lazily(
    __name__,
    __all__,
    {
        "shiftprism.classifier": ("Classifier", "adapt", "predict"),
        "shiftprism.detector": ("Detector",),
        "shiftprism.outputs": ("Outputs",),
    },
)
