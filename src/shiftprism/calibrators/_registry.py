"""Every calibrator by name."""

from shiftprism.calibrators._affine import Dirichlet, Matrix, Vector
from shiftprism.calibrators._alpha_beta import AlphaBeta
from shiftprism.calibrators._calibrator import Calibrator
from shiftprism.calibrators._exponential_map import ExponentialMap
from shiftprism.calibrators._monotone import Monotone
from shiftprism.calibrators._shift_aware import ShiftAware
from shiftprism.calibrators._temperature import Temperature
from shiftprism.calibrators._top_label import Histogram, Isotonic

CALIBRATORS: dict[str, type[Calibrator]] = {
    "temperature": Temperature,
    "vector": Vector,
    "matrix": Matrix,
    "dirichlet": Dirichlet,
    "alpha-beta": AlphaBeta,
    "exponential-map": ExponentialMap,
    "monotone": Monotone,
    "isotonic": Isotonic,
    "histogram": Histogram,
    "shift-aware": ShiftAware,
}


def describe_calibrators() -> list[tuple[str, ...]]:
    """A row of cells for each calibrator, the titles first: `shiftprism list calibrators` and docs/calibrators.md."""
    rows: list[tuple[str, ...]] = [("name", "calibrated logits", "class", "keeps predictions", "fits bare logits")]
    for name, kind in CALIBRATORS.items():
        summary = (kind.__doc__ or "").partition("\n")[0].strip().rstrip(".")
        keeps, bare = (
            "yes" if flag else "no" for flag in (kind.keeps_predictions, not (kind.needs_norms or kind.needs_shifted))
        )
        rows.append((name, summary, kind.__name__, keeps, bare))
    return rows
