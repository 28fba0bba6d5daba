"""Which kind of shift a stream shows."""

from shiftprism.monitor._ranks import Floats


def decide_kind(sums: Floats, count: int) -> str:
    """covariate or concept, from Σ ln p of style and of concept over the `count` observations since the change.

    Without shift a sum is about −count. What it is below that is the evidence of its axis. Style is nearly silent on
    unseen classes, while a concept score falls under covariate shift as well: so the shift is covariate where style has
    at least three quarters of the evidence that concept has. Not all of it: in a strong shift both p-values have the
    lowest rank there is, and equal sums would be decided by chance.

    >>> import numpy as np
    >>> [decide_kind(np.array(sums), 10) for sums in ((-40.0, -30.0), (-40.0, -42.0), (-12.0, -30.0))]
    ['covariate', 'covariate', 'concept']
    """
    style, concept = -sums - count
    return "covariate" if 4 * style >= 3 * concept else "concept"
