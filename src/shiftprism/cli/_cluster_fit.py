"""`shiftprism fit --cluster`: a folder of images in, a detector out; workers of a Ray cluster forward the images."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from shiftprism._errors import wrong
from shiftprism.cli._clusters import check_cluster

if TYPE_CHECKING:
    from shiftprism.classifier import Classifier
    from shiftprism.cli._held_out import Images
    from shiftprism.detector import Detector


MORE_IMAGES = "name a folder of more images with --data, or allow more false alarms with --false-alarm"


class Levels(TypedDict):
    """What a detector promises."""

    false_alarm: float
    confidence: float | None
    by_class: bool


def check_options(cluster: str, data: str | None, training: str | None, device: str) -> None:
    """Refuse what a cluster has no use for, before anything is loaded."""
    if data is None or not Path(data).is_dir():
        got = "nothing" if data is None else data
        raise wrong("--data", "a folder of images with --cluster", got, "name one that every worker reads")
    if training is not None:
        raise wrong("--training", "left out with --cluster", training, "it is forwarded on one machine only")
    if device not in ("auto", "cpu"):
        raise wrong("--device", "auto or cpu with --cluster", device, "workers compute on their CPUs")
    check_cluster(cluster)


def fit_folder(
    classifier: "Classifier",
    folder: Path,
    out: Path,
    cluster: str,
    model: str | None,
    levels: Levels,
    concept: str | None,
    seed: int,
    report: Callable[[str, int, int], None],
) -> "tuple[Detector, Images]":
    """The detector, and what it was fitted to. Finished parts wait in a folder beside `out`."""
    from shiftprism.cli._held_out import FileImages, Images, find_classes
    from shiftprism.datasets import list_images
    from shiftprism.detector import check_count, fit_on_cluster

    paths = list_images(folder)
    if not paths:
        raise wrong("--data", "a folder with images", f"{folder} without any", "name another")
    check_count(len(paths), levels["false_alarm"], levels["confidence"], name="--data", advice=MORE_IMAGES)
    fitted = fit_on_cluster(
        classifier,
        paths,
        find_classes(folder, paths, classifier.names),
        folder=out.with_name(f"{out.name}.parts"),
        cluster=cluster,
        model=model,
        **levels,
        concept=concept,
        seed=seed,
        progress=lambda done, total: report("forwarding" if done < total else "fitting", done, total),
    )
    return fitted.detector, Images(FileImages(fitted.paths), None, str(folder), fitted.problems)
