"""Which kind of shift a stream shows."""

from shiftprism.monitor._ranks import Floats


def decide_kind(sums: Floats) -> str:
    """covariate or concept, from Σ ln p of style and of concept since the change.

    The axis whose p-values are smaller decides, in the sense of Fisher's combination: `scores.which_way`, summed over
    the stream. Style is nearly silent on unseen classes, while a concept score falls under covariate shift as well;
    but it falls less than style does.

    >>> import numpy as np
    >>> decide_kind(np.array([-40.0, -30.0])), decide_kind(np.array([-12.0, -30.0]))
    ('covariate', 'concept')
    """
    return "covariate" if sums[0] <= sums[1] else "concept"
