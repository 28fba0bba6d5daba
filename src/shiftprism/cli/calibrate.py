"""`shiftprism calibrate`: a calibrator for a saved run, or for the logits of a model trained anywhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftprism._errors import wrong
from shiftprism.cli._flags import Device, check_new
from shiftprism.cli._models import OwnModel, is_own_folder, load_model, predict_files

if TYPE_CHECKING:
    from torch import Tensor

    from shiftprism.calibrators import Calibrator
    from shiftprism.classifier import Classifier
    from shiftprism.outputs import Outputs


def calibrate(
    run: Annotated[Path | None, typer.Argument(help="The folder of a trained model.")] = None,
    logits: Annotated[
        Path | None,
        typer.Option(
            help="Instead of RUN: an .npz file with labels and logits or probabilities; raw, norms, features optional."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="temperature, vector, matrix, dirichlet, alpha-beta, monotone, …")] = "",
    data: Annotated[
        str | None, typer.Option(help="A data set by name; by default the one the run was trained on.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, test, all or held-out, the part not trained on. (held-out if there is one)")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="The folder to write to. (RUN/calibrators/METHOD)")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the data are.")] = None,
    model: OwnModel = "",
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace what is in the folder.")] = False,
) -> None:
    """Fit a calibrator, save it to a folder, and print accuracy, NLL and ECE before and after."""
    from shiftprism._errors import choice
    from shiftprism.calibrators import CALIBRATORS

    if (run is None) == (logits is None):
        got = "neither" if run is None else "both"
        raise wrong("RUN", "given, or --logits in its place,", got, "name a trained model or an .npz file")
    method = choice("method", method or ("alpha-beta" if run is not None else "temperature"), CALIBRATORS)
    folder = out or (run / "calibrators" / method if run is not None else Path(logits or "").with_suffix("") / method)
    check_new("out", folder, force)
    if run is not None:
        outputs, labels, weights, source = _predict_run(run, model, data, split, root, device)
    else:
        assert logits is not None
        outputs, labels = _read_arrays(logits)
        weights, source = "", str(logits)
    fitted = CALIBRATORS[method].fit(outputs, labels)
    fitted.save(folder, weights)
    _print(f"{method} fitted to {outputs.N} samples of {source}")
    held_out = _cross_validate(fitted, outputs, labels)
    _print_table(fitted, outputs, labels, held_out)
    report = fitted.report
    ended = "converged" if report.converged else "NOT converged"
    _print(f"{ended} after {report.iterations} iterations{'; ' if report.note else ''}{report.note}")
    for warning in _list_warnings(outputs, held_out):
        _print(f"Warning: {warning}")
    _print(f"Written: {folder.resolve()}")


def _predict_run(
    run: Path, model: str, data: str | None, split: str, root: Path | None, device: str
) -> "tuple[Outputs, Tensor, str, str]":
    """Outputs and labels of the data asked for, the model's fingerprint, and words for the data."""
    from shiftprism._errors import choice
    from shiftprism.classifier import predict
    from shiftprism.datasets import load
    from shiftprism.training import read_run_settings, split_held_out

    classifier = load_model(run, model, device)
    settings = read_run_settings(run)
    name = data or settings.get("data")
    if name is None:
        raise wrong("data", "given", "a run that does not say what it was trained on", "add --data NAME")
    share = float(settings.get("held_out", 0.0)) if name == settings.get("data") else 0.0
    split = choice("split", split or ("held-out" if share else "test"), ("held-out", "train", "test", "all"))
    if split == "held-out":
        if not share:
            raise wrong("split", "one this run has", "held-out", "training held out none of these data")
        chosen = split_held_out(name, share, root)[1]
    elif is_own_folder(classifier, name, root):
        return _predict_folder(classifier, name, split, root)
    else:
        chosen = load(name, split, root)
    _check_names(classifier, chosen.names, name)
    try:
        outputs, _ = predict(classifier, chosen)
    except ValueError as error:  # the images are those of --data
        raise ValueError(str(error).replace("`images`", "`data`")) from error
    return outputs, chosen.labels, classifier.fingerprint(), f"{name} ({split})"


def _predict_folder(
    classifier: "Classifier", name: str, split: str, root: Path | None
) -> "tuple[Outputs, Tensor, str, str]":
    """The same of image files of any size, through the model's own resize rule; what cannot be read is left out."""
    from shiftprism.datasets import list_labelled

    files = list_labelled((root or Path()) / Path(name).expanduser(), split)
    _check_names(classifier, files.names, name)
    outputs, rows, problems = predict_files(classifier, files.paths)
    for path, problem in list(problems.items())[:_SHOWN]:
        _print(f"Left out: {path}: {problem}")
    if len(problems) > _SHOWN:
        _print(f"Left out: {len(problems) - _SHOWN} more")
    return outputs, files.labels[rows], classifier.fingerprint(), f"{name} ({split})"


def _check_names(classifier: "Classifier", names: tuple[str, ...], data: str) -> None:
    """Refuse data of other classes; a model whose classes have no names has numbers for them."""
    numbers = tuple(str(number) for number in range(len(names)))
    if classifier.names not in (tuple(names), numbers) or len(names) != len(classifier.names):
        got = f"{data} with {len(names)} others"
        raise wrong("data", f"of the {len(classifier.names)} classes of the model", got, "calibrate on its own classes")


def _read_arrays(path: Path) -> "tuple[Outputs, Tensor]":
    """The Outputs in an .npz: whatever of raw, norms and features it has beside logits or probabilities."""
    import torch

    from shiftprism._checks import classes, matrix, vector
    from shiftprism.calibrators import as_outputs
    from shiftprism.datasets import read_npz
    from shiftprism.outputs import Outputs

    try:
        arrays = read_npz(path)
    except ValueError as error:
        got = f"{path} ({getattr(error, 'problem', error)})"
        raise wrong("logits", "an .npz file of plain arrays", got, "write it with numpy.savez") from error
    names = {"logits", "probabilities", "labels", "raw", "norms", "features"}
    if "labels" not in arrays or ("logits" in arrays) == ("probabilities" in arrays) or set(arrays) - names:
        got = f"{path} with {', '.join(sorted(arrays)) or 'nothing'}"
        raise wrong("logits", "a file of labels and either logits or probabilities", got, f"known: {sorted(names)}")
    plain = as_outputs(logits=arrays.get("logits"), probabilities=arrays.get("probabilities"))
    if plain.K < 2:
        advice = "store the logits of all classes; for two classes that is two columns"
        raise wrong("logits", "a file of two classes or more", f"{path} with {plain.K}", advice)
    labels = torch.from_numpy(classes("labels", arrays["labels"], plain.N, plain.K))
    if "norms" not in arrays and "features" not in arrays:
        if "raw" in arrays:
            advice = "add one of them, or leave raw out"
            raise wrong("logits", "a file with norms or features beside raw", f"{path} without them", advice)
        return plain, labels
    if "features" in arrays:
        features = torch.from_numpy(matrix("features", arrays["features"]))
    norms = torch.from_numpy(vector("norms", arrays["norms"])) if "norms" in arrays else features.norm(dim=1)
    if "features" not in arrays:
        features = norms[:, None]  # α-β over logits reads |f| alone; a feature of that length stands for the others
    raw = torch.from_numpy(matrix("raw", arrays["raw"])) if "raw" in arrays else plain.logits
    similarities = raw / norms[: len(raw), None].clamp_min(1e-6) if len(norms) == len(raw) else raw
    return Outputs(features, norms, similarities, raw, plain.logits).check(), labels


_SHOWN = 5
_FEW = 500
"""With fewer samples than this there is a warning: on digits, a fit to 240 helped or harmed by chance."""


def _cross_validate(fitted: "Calibrator", outputs: "Outputs", labels: "Tensor") -> dict[str, tuple[float, float]]:
    """NLL and ECE before and after by cross validation: those of the report, or computed where the fit needed none."""
    import math

    import torch

    from shiftprism.calibrators import cross_validate
    from shiftprism.metrics import ece, nll

    report = fitted.report
    if not math.isnan(report.held_out_nll_after):
        return {
            "before": (report.held_out_nll_before, report.held_out_ece_before),
            "after": (report.held_out_nll_after, report.held_out_ece_after),
        }
    logits = {"before": outputs.logits, "after": outputs.logits}
    if report.kept != "logits":
        logits["after"] = cross_validate(type(fitted), outputs, labels)
    probabilities = {name: torch.softmax(each.double(), 1) for name, each in logits.items()}
    return {name: (nll(p, labels), ece(p, labels)) for name, p in probabilities.items()}


def _list_warnings(outputs: "Outputs", held_out: dict[str, tuple[float, float]]) -> list[str]:
    """What speaks against using this calibrator."""
    warnings = []
    if outputs.N < _FEW:
        warnings.append(f"{outputs.N} samples are few; with {_FEW} or more a gain is easier to tell from chance.")
    for name, before, after in zip(("NLL", "ECE"), held_out["before"], held_out["after"], strict=True):
        if after > before:
            warnings.append(f"on held-out folds the {name} rises from {before:.4f} to {after:.4f}.")
    return warnings


def _print_table(
    fitted: "Calibrator", outputs: "Outputs", labels: "Tensor", held_out: dict[str, tuple[float, float]]
) -> None:
    import torch
    from rich.console import Console
    from rich.table import Table

    from shiftprism.metrics import accuracy, ece, nll

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for name in ("", "accuracy", "NLL", "ECE", "held-out NLL", "held-out ECE"):
        table.add_column(name, justify="left" if not name else "right")
    sides = {"before": torch.softmax(outputs.logits.double(), 1), "after": fitted.probabilities(outputs)}
    for name, p in sides.items():
        numbers = (nll(p, labels), ece(p, labels), *held_out[name])
        table.add_row(name, f"{accuracy(p, labels):.2%}", *(f"{number:.4f}" for number in numbers))
    Console().print(table)
    _print(
        "Held-out: by cross validation, samples judged by a fit to others. The rest: the data of the fit.",
        "dim",
    )


def _print(text: str, style: str = "") -> None:
    """A line as it is: a path is neither coloured nor broken."""
    from rich.console import Console

    Console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)
