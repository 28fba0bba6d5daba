"""`shiftprism calibrate`: a calibrator for a saved run, or for the logits of a model trained anywhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from shiftprism.calibrators import Calibrator
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
) -> None:
    """Fit a calibrator, save it to a folder, and print accuracy, NLL and ECE before and after."""
    from shiftprism._checks import choice, wrong
    from shiftprism.calibrators import CALIBRATORS

    if (run is None) == (logits is None):
        got = "neither" if run is None else "both"
        raise wrong("RUN", "given, or --logits in its place,", got, "name a trained model or an .npz file")
    method = choice("method", method or ("alpha-beta" if run is not None else "temperature"), CALIBRATORS)
    if run is not None:
        outputs, labels, model, source = _predict_run(run, data, split, root)
        folder = out or run / "calibrators" / method
    else:
        assert logits is not None
        outputs, labels = _read_arrays(logits)
        model, source, folder = "", str(logits), out or logits.with_suffix("") / method
    fitted = CALIBRATORS[method].fit(outputs, labels)
    fitted.save(folder, model)
    _print(f"{method} fitted to {outputs.N} samples of {source}")
    _print_table(fitted, outputs, labels)
    report = fitted.report
    ended = "converged" if report.converged else "NOT converged"
    _print(f"{ended} after {report.iterations} iterations{'; ' if report.note else ''}{report.note}")
    _print("Measured on the data of the fit: expect slightly worse numbers on other data of the same kind.", "dim")
    _print(f"Written: {folder.resolve()}")


def _predict_run(run: Path, data: str | None, split: str, root: Path | None) -> "tuple[Outputs, Tensor, str, str]":
    """Outputs and labels of the data asked for, the model's fingerprint, and words for the data."""
    from shiftprism._checks import choice, wrong
    from shiftprism.classifier import Classifier, predict
    from shiftprism.datasets import load
    from shiftprism.training import read_settings, split_held_out

    classifier = Classifier.load(run)
    settings = read_settings(run / "config.toml") if (run / "config.toml").exists() else {}
    name = data or settings.get("data")
    if name is None:
        raise wrong("data", "given", "a run that does not say what it was trained on", "add --data NAME")
    share = float(settings.get("held_out", 0.0)) if name == settings.get("data") else 0.0
    split = choice("split", split or ("held-out" if share else "test"), ("held-out", "train", "test", "all"))
    if split == "held-out":
        if not share:
            raise wrong("split", "one this run has", "held-out", "training held out none of these data")
        chosen = split_held_out(name, share, root)[1]
    else:
        chosen = load(name, split, root)
    if tuple(chosen.names) != tuple(classifier.names):
        got = f"{name} with {len(chosen.names)} others"
        raise wrong("data", f"of the {len(classifier.names)} classes of the model", got, "calibrate on its own classes")
    outputs, _ = predict(classifier, chosen)
    return outputs, chosen.labels, classifier.fingerprint(), f"{name} ({split})"


def _read_arrays(path: Path) -> "tuple[Outputs, Tensor]":
    """The Outputs in an .npz: whatever of raw, norms and features it has beside logits or probabilities."""
    from zipfile import BadZipFile

    import numpy as np
    import torch

    from shiftprism._checks import classes, matrix, vector, wrong
    from shiftprism.calibrators import as_outputs
    from shiftprism.outputs import Outputs

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile, EOFError, AttributeError) as error:
        raise wrong(
            "logits", "an .npz file of plain arrays", f"{path} ({error})", "write it with numpy.savez"
        ) from error
    names = {"logits", "probabilities", "labels", "raw", "norms", "features"}
    if "labels" not in arrays or ("logits" in arrays) == ("probabilities" in arrays) or set(arrays) - names:
        got = f"{path} with {', '.join(sorted(arrays)) or 'nothing'}"
        raise wrong("logits", "a file of labels and either logits or probabilities", got, f"known: {sorted(names)}")
    plain = as_outputs(logits=arrays.get("logits"), probabilities=arrays.get("probabilities"))
    labels = torch.from_numpy(classes("labels", arrays["labels"], plain.N, plain.K))
    if "norms" not in arrays and "features" not in arrays:
        return plain, labels
    if "features" in arrays:
        features = torch.from_numpy(matrix("features", arrays["features"]))
    norms = torch.from_numpy(vector("norms", arrays["norms"])) if "norms" in arrays else features.norm(dim=1)
    if "features" not in arrays:
        features = norms[:, None]  # α-β over logits reads |f| alone; a feature of that length stands for the others
    raw = torch.from_numpy(matrix("raw", arrays["raw"])) if "raw" in arrays else plain.logits
    similarities = raw / norms[: len(raw), None].clamp_min(1e-6) if len(norms) == len(raw) else raw
    return Outputs(features, norms, similarities, raw, plain.logits).check(), labels


def _print_table(fitted: "Calibrator", outputs: "Outputs", labels: "Tensor") -> None:
    import torch
    from rich.console import Console
    from rich.table import Table

    from shiftprism.metrics import accuracy, ece, nll

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for name in ("", "accuracy", "NLL", "ECE"):
        table.add_column(name, justify="left" if not name else "right")
    sides = {"before": torch.softmax(outputs.logits.double(), 1), "after": fitted.probabilities(outputs)}
    for name, p in sides.items():
        table.add_row(name, f"{accuracy(p, labels):.2%}", f"{nll(p, labels):.4f}", f"{ece(p, labels):.4f}")
    Console().print(table)


def _print(text: str, style: str = "") -> None:
    """A line as it is: a path is neither coloured nor broken."""
    from rich.console import Console

    Console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)
