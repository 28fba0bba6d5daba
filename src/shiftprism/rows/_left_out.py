"""Pairs of a model and a score that say nothing of their own: they are neither measured nor ranked."""

_NO_ANGLES = "this head has no class weights, so there are no angles to them"
_SAME = "this is the same number as kernel"
_NO_STYLE = "members have layers of their own, so their mean has no style"
_NO_SUM = "the mean of probabilities has a log-sum-exp of 0: what is left is rounding"
_ENSEMBLES = ("ensemble", "alpha-beta-ensemble")
_LEFT_OUT: dict[tuple[str, str], str] = {
    **{(model, "energy"): _NO_SUM for model in _ENSEMBLES},
    **{(model, subject): _NO_STYLE for model in _ENSEMBLES for subject in ("style", "spectrum", "shift-aware")},
    **{
        (model, score): _NO_ANGLES for model in ("duq", "sngp") for score in ("h", "u", "kl_uniform", "fisher", "prism")
    },
    **{("duq", score): _SAME for score in ("max_logit", "max_similarity")},
}


def why_left_out(model: str, subject: str) -> str:
    """Why a score of a model is left out; "" if it is not.

    >>> why_left_out("ensemble", "energy")
    'the mean of probabilities has a log-sum-exp of 0: what is left is rounding'
    >>> why_left_out("vanilla", "energy")
    ''
    """
    return _LEFT_OUT.get((model, subject), "")
