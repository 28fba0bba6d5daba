"""The small study behind `shiftprism demo`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from shiftprism.benchmark._evidence import Evidence, Source, gather
from shiftprism.benchmark._measure import measure
from shiftprism.benchmark._rows import Row
from shiftprism.classifier import Classifier
from shiftprism.datasets import load
from shiftprism.shifts import Shift, covariate, hold_out
from shiftprism.training import PRESETS, Progress, Training, channel_statistics, train

UNSEEN_DIGITS = ("7", "8", "9")
DIGIT_CORRUPTIONS = ("gaussian_noise", "motion_blur", "contrast")


def digits(
    heads: Sequence[str] = ("vanilla", "alpha-beta"),
    seeds: Sequence[int] = (0, 1, 2),
    training: Training = PRESETS["smoke"],
    progress: Callable[[str, Progress], None] | None = None,
) -> tuple[list[Row], list[Evidence]]:
    """The small study on scikit-learn's digits: unseen digits are concept shift, corruptions are covariate shift.

    A fifth of the training digits is held out for calibration. Unseen digits come from both splits: no model saw them.
    """
    known, unseen_train = hold_out(load("digits", "train"), UNSEEN_DIGITS)
    test, unseen_test = hold_out(load("digits", "test"), UNSEEN_DIGITS)
    unseen = unseen_test._replace(
        images=torch.cat([unseen_train.images, unseen_test.images]),
        labels=torch.cat([unseen_train.labels, unseen_test.labels]),
    )
    held = torch.arange(len(known.images)) % 5 == 0
    learned, validation = known.rows(~held), known.rows(held)
    mean, std = channel_statistics(learned.images)
    shifts = [Shift("unseen digits", "concept", 0, lambda: unseen), *covariate(test, DIGIT_CORRUPTIONS)]
    rows, evidence = [], []
    for seed in seeds:
        for head in heads:
            classifier = Classifier.build("digits", head, known.names, 1, mean, std, seed)

            def tell(now: Progress, name: str = f"{head}, seed {seed}") -> None:
                if progress is not None:
                    progress(name, now)

            train(classifier, learned, replace(training, seed=seed), tell)
            source = Source(head, "digits", "digits", head, seed, "held-out", classifier.fingerprint()[:12])
            evidence.append(gather(source, classifier, validation, test, shifts))
            rows += measure(evidence[-1]).rows
    return rows, evidence
