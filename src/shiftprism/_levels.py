"""Which ranks raise the alarm: false-alarm rates that hold for finite samples, by counting. NumPy alone.

Among n held-out images and one new one that are exchangeable, every rank of the new one is equally likely. So an alarm
at the k lowest of n + 1 ranks has a chance of k/(n + 1), and less where scores tie.
"""

import math

import numpy as np

from shiftprism._errors import wrong


def count_allowed(n: int, false_alarm: float, confidence: float | None = None) -> int:
    """k: how many of the lowest of n + 1 ranks may raise the alarm; 0 where n is too small for the level.

    Without `confidence` the level holds on average over detectors fitted to such images: k = ⌊α(n + 1)⌋. With it, the
    level holds for this detector with that probability: its own false-alarm rate is at most that of a Beta(k, n + 1 −
    k) variable, so k is the largest number for which this stays below α with that probability. It does where at least
    k of n uniform numbers lie below α, which is a binomial tail.

    >>> count_allowed(19, 0.05), count_allowed(18, 0.05), count_allowed(999, 0.05), count_allowed(999, 0.05, 0.95)
    (1, 0, 50, 39)
    """
    _check_levels(false_alarm, confidence)
    if confidence is None:
        return math.floor(false_alarm * (n + 1) + 1e-9)  # 0.05 · 20 is 1, whatever the rounding
    k = np.arange(n)
    # ln of the binomial probabilities of 0 … n − 1, by their ratios
    steps = np.log((n - k[:-1]) / (k[:-1] + 1)) + math.log(false_alarm) - math.log1p(-false_alarm)
    below = np.exp(n * math.log1p(-false_alarm) + np.concatenate([[0.0], steps.cumsum()])).cumsum()
    return int((1 - below >= confidence).sum())  # 1 − below[k − 1] is the chance of at least k, and falls with k


def find_cuts(
    sizes: "list[int]", false_alarm: float, confidence: float | None, names: "tuple[str, ...] | None" = None
) -> list[float]:
    """For each number of held-out images, half a step above the largest p-value that raises the alarm.

    Half a step, so that the rounding of a p-value decides nothing. With `names` the sizes are those of classes.

    >>> find_cuts([19, 39], 0.05, None)
    [0.075, 0.0625]
    """
    needed = count_needed(false_alarm, confidence)
    if short := [number for number, size in enumerate(sizes) if size < needed]:
        advice = "fit with more held-out images, or allow more false alarms"
        got = f"{sizes[short[0]]}"
        if names is not None:
            got += f" predicted as {names[short[0]]}" + (
                f", and too few in {len(short) - 1} more classes" if short[1:] else ""
            )
        raise wrong("images", f"at least {needed} held-out images for the p-values at this level", got, advice)
    return [(count_allowed(size, false_alarm, confidence) + 0.5) / (size + 1) for size in sizes]


def count_needed(false_alarm: float, confidence: float | None = None) -> int:
    """The fewest held-out images with which any rank may raise the alarm at this level.

    >>> count_needed(0.05), count_needed(0.01), count_needed(0.05, 0.95)
    (19, 99, 59)
    """
    _check_levels(false_alarm, confidence)
    if confidence is None:
        return math.ceil(1 / false_alarm - 1e-9) - 1
    return math.ceil(math.log(1 - confidence) / math.log(1 - false_alarm) - 1e-9)


def _check_levels(false_alarm: float, confidence: float | None) -> None:
    for name, value in (("false_alarm", false_alarm), ("confidence", 0.5 if confidence is None else confidence)):
        if not 0 < value < 1:
            raise wrong(name, "between 0 and 1", value, "0.05 false alarms and a confidence of 0.95 are usual")
