"""`shiftprism score --cluster`: archives in, one Parquet file out, by the workers of a Ray cluster."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shiftprism._errors import wrong
from shiftprism.cli._clusters import check_cluster
from shiftprism.cli._opening import describe_levels
from shiftprism.cli._progress import print_counts, show_progress
from shiftprism.cli._verdict_files import make_row, path_text
from shiftprism.cli._verdict_parts import VerdictParts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from shiftprism.archives import Part


class Order(NamedTuple):
    """What is scored, by what, and where."""

    detector: str
    places: list[str]
    """Files, folders and s3:// places."""
    to: Path | None
    cluster: str
    false_alarm: float | None
    column: str | None


def check_options(order: Order, model: str | None, device: str) -> None:
    """Refuse options that a cluster has no use for, before anything is loaded."""
    if order.to is None:
        raise wrong("--to", "given with --cluster", "nothing", "add --to verdicts.parquet")
    if model is not None:
        advice = "run shiftprism export with --model once, and give the .onnx file in place of the detector"
        raise wrong("--model", "left out with --cluster", model, advice)
    if device not in ("auto", "cpu"):
        raise wrong("--device", "auto or cpu with --cluster", device, "workers compute on their CPUs")
    check_cluster(order.cluster)


def refuse_archives(words: list[str], column: str | None) -> None:
    """Without a cluster only image files are read: an archive that is named gets a line that says what to do."""
    from shiftprism.archives import find_kind

    for word in words:
        if find_kind(word) != "files" or word.startswith("s3://"):
            advice = "add --cluster local --to verdicts.parquet"
            raise wrong("images", "image files or folders without --cluster", word, advice)
    if column is not None:
        raise wrong("--column", "left out without --cluster", column, "add --cluster local")


def score_on_cluster(console: "Console", order: Order, force: bool) -> Counter[str]:
    """Score what the file lacks, write it part by part, and count the kinds of all rows."""
    from shiftprism.archives import score_parts
    from shiftprism.runtime import load

    assert order.to is not None
    model = _find_file(order.detector)
    detector = load(model)
    if order.false_alarm is not None:
        detector = detector.at(order.false_alarm, detector.confidence)
    levels = describe_levels(detector.false_alarm, detector.confidence, detector.about.by_class)
    identity = f"{detector.fingerprint[:16]} at {levels}"
    file = VerdictParts(order.to, identity, force)
    parts = _list_missing(order, file)
    file.start()
    if file.paths:
        rest = f"; {len(parts)} parts are missing" if parts else ""
        console.print(f"{len(file.paths)} images are in {order.to} already{rest}.", highlight=False, soft_wrap=True)
    failed: list[str] = []
    with show_progress(len(parts)) as advance:
        for result in score_parts(model, parts, order.cluster, order.false_alarm):
            if result.error:
                failed.append(f"{result.part.names[0]}: {result.error}")
            else:
                file.add(result.part.key, [make_row(image, identity) for image in result.images])
            advance(1)
    if failed:
        what = f"{len(failed)} of {len(parts)} parts failed ({failed[0]})"
        raise OSError(f"{what}; the others are kept in {file.folder}, and the same command tries these again")
    kinds = file.finish()
    print_counts(console, kinds, f"{order.detector} at {levels}")
    console.print(f"Written: {order.to.resolve()}", markup=False, highlight=False, soft_wrap=True)
    return kinds


def _find_file(name: str) -> Path:
    """The exported file of a detector: made once of a folder, and kept."""
    from shiftprism.cli.serve import export_cached
    from shiftprism.detector import find_bundled

    path = Path(name)
    if (path / "detector.json").exists():
        return export_cached(path)
    if bundled := find_bundled(name):
        return export_cached(bundled, name)
    if not name.lower().endswith(".onnx") or not path.is_file():
        got = f"{name!r}, which is neither"
        advice = "make one with shiftprism fit or shiftprism export"
        raise wrong("detector", "the folder of a detector or an exported file", got, advice)
    return path


def _list_missing(order: Order, file: VerdictParts) -> "Sequence[Part]":
    """The parts of all images that the file lacks. No image at all is an error."""
    from shiftprism.archives import find_kind, list_parts, list_places

    # in the order of the rows, so that the file is put together part by part
    names = sorted(dict.fromkeys(list_places(order.places)), key=path_text)
    if not names:
        got = ", ".join(order.places[:3]) or "none"
        raise wrong("images", "at least one image or archive", f"none in {got}", "name files or folders with images")
    left = (name for name in names if find_kind(name) != "files" or path_text(name) not in file.paths)
    return [part for part in list_parts(left, order.column) if part.key not in file.keys]
