"""What a benchmark's folder says about style, spectrum, attribution, shift-aware and mirrored models, seed by seed.

Run with: .venv/bin/python tools/shift_study.py GRID [GRID …] [--families] [--to results/shift]

A GRID comes from `shiftprism benchmark --suite paper --data cifar10 --runs vanilla=RUN … --scores g,h,u,gen,knn,style,\
spectrum --calibrators temperature,shift-aware [--mirror] --out GRID`. What rows do not hold is computed from the stored
Outputs: the oracle (a temperature for each condition), the sampling floor of the ECE, and, with `--families`, what
`style` and `shift-aware` do on a family of extras that they were fitted without. With `--to`, the folder gets a
README.md of the same tables; `tools/publish.py GRID --add` publishes the rows.
"""

import argparse
import contextlib
import io
from math import isnan
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from publish import list_commands
from shift_goals import FOUR, LEVELS, Numbers, percent
from shiftprism._files import write_text
from shiftprism.calibrators import ShiftAware, Temperature
from shiftprism.corruptions import COMMON, FAMILIES
from shiftprism.metrics import auroc, ece
from shiftprism.outputs import Outputs
from shiftprism.rows import CellFolder, Results, ResultsFolder, set_file
from shiftprism.scores import Style


def load(path: Path) -> tuple[Outputs, Tensor]:
    outputs, labels = Outputs.load(path)
    assert labels is not None
    return outputs, labels


def detect(names: list[str], networks: list[Numbers]) -> None:
    print("| AUROC: CIFAR-100 / corrupted / SVHN / TIN(R) / mean | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for score in ("g", "h", "u", "gen", "knn", "prism", "style", "spectrum"):
        cells = []
        for own in networks:
            four = [own(shift, score, "auroc") for shift in FOUR]
            cells.append("" if isnan(fmean(four)) else percent([*four, fmean(four)]))  # a grid may lack a score
        print(f"| `{score}` | " + " | ".join(cells) + " |")
    print("\n| `style`, severity 1 / 3 / 5 / all | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for name in COMMON:
        ladders = [[own(name, "style", "auroc", s) for s in (*LEVELS, 0)] for own in networks]
        print(f"| {name} | " + " | ".join(map(percent, ladders)) + " |")
    print(
        "\n| which way; % flagged: covariate / concept | "
        + " | ".join(names)
        + " |\n"
        + "|---" * (len(names) + 1)
        + "|"
    )
    for pair in ("style, gen", "g, h"):
        print(
            f"| ({pair}) | " + " | ".join(f"{100 * own('corrupted', pair, 'which_way'):.1f}" for own in networks) + " |"
        )
    kinds = ("covariate", "concept")
    for shift in ("clean", *(one for one in FOUR if one != "corrupted")):
        shares = [percent(own(shift, "attribution", kind) for kind in kinds) for own in networks]
        print(f"| {shift} | " + " | ".join(shares) + " |")
    for severity in LEVELS:
        shares = [percent(own.at(severity, "attribution", kind) for kind in kinds) for own in networks]
        print(f"| corrupted, {severity} | " + " | ".join(shares) + " |")


def calibrate(names: list[str], networks: list[Numbers], cells: list[CellFolder]) -> None:
    print("\n| clean ECE / corrupted ECE / clean NLL / corrupted NLL | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for subject in ("none", "temperature", "shift-aware"):
        texts = []
        for own in networks:
            values = [own(shift, subject, metric) for metric in ("ece", "nll") for shift in ("clean", "corrupted")]
            texts.append(" / ".join(f"{value:.4f}" for value in values))
        print(f"| {subject} | " + " | ".join(texts) + " |")
    print("| oracle; sampling floor (corrupted ECE) | " + " | ".join(map(oracle, cells)) + " |")
    accuracy = [percent(own(shift, "none", "accuracy") for shift in ("clean", "corrupted")) for own in networks]
    print("| accuracy, clean / corrupted | " + " | ".join(accuracy) + " |")
    changed = [f"{own('corrupted', 'shift-aware', 'predictions_changed'):g}" for own in networks]
    print("| share of predictions changed by shift-aware | " + " | ".join(changed) + " |")


def oracle(cell: CellFolder) -> str:
    """The mean ECE of a temperature fitted to each corrupted condition, and that of labels drawn from it."""
    generator, best, floor = torch.Generator().manual_seed(0), [], []
    for name in COMMON:
        for severity in range(1, 6):
            outputs, labels = load(cell.outputs(name, severity))
            probabilities = Temperature.fit(outputs, labels).probabilities(outputs)
            best.append(ece(probabilities, labels))
            drawn = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
            floor.append(ece(probabilities, drawn))
    return f"{fmean(best):.4f}; {fmean(floor):.4f}"


def leave_out_families(cell: CellFolder) -> dict[str, str]:
    """Fitted without a family of extras, to half of the copies; judged on this family's other half."""
    held, truth = load(cell.outputs("held-out"))
    even = torch.arange(held.N) % 2 == 0
    folder = cell.path / "outputs" / "copies"
    sets = {
        (extra, s): load(folder / set_file(extra, s))
        for extras in FAMILIES.values()
        for extra in extras
        for s in LEVELS
    }
    half = {key: torch.arange(len(one[1])) % 2 == 0 for key, one in sets.items()}
    temperature = Temperature.fit(held.rows(even), truth[even])
    found = {}
    for family, left in FAMILIES.items():
        kept = {key: (one[0].rows(half[key]), one[1][half[key]]) for key, one in sets.items() if key[0] not in left}
        named = {f"{extra} {s}": one for (extra, s), one in kept.items()}
        style = Style.fit(held.rows(even), {key: one[0] for key, one in named.items()})
        aware = ShiftAware.fit(held.rows(even), truth[even], shifted=named)
        inside = held.rows(~even)
        tested = [(sets[e, s][0].rows(~half[e, s]), sets[e, s][1][~half[e, s]]) for e in left for s in LEVELS]
        seen = fmean(auroc(style(inside), style(one)) for one, _ in tested)
        eces = [fmean(ece(fit.probabilities(one), y) for one, y in tested) for fit in (temperature, aware)]
        found[family] = f"{100 * seen:.1f} / {eces[0]:.3f} / {eces[1]:.3f}"
    return found


def study(grids: list[Path], families: bool) -> None:
    every = [cell for grid in grids for cell in ResultsFolder(grid).cells()]
    cells = [cell for cell in every if cell.rows.exists() and "pixels" not in cell.path.name]
    mirrored = [cell for cell in cells if "-mirrored-" in cell.path.name]
    cells = [cell for cell in cells if cell not in mirrored]
    names = [cell.path.name.removeprefix("cifar10-") for cell in cells]
    networks = [Numbers(Results.read(cell.path)) for cell in cells]
    detect(names, networks)
    calibrate(names, networks, cells)
    for cell in mirrored:
        twice, once = (
            Numbers(Results.read(path)) for path in (cell.path, Path(str(cell.path).replace("-mirrored", "")))
        )
        pairs = [("u", "auroc", "cifar100"), ("gen", "auroc", "cifar100"), ("none", "accuracy", "clean")]
        for subject, metric, shift in pairs:
            values = [own(shift, subject, metric) for own in (once, twice)]
            print(f"{cell.path.name}: {subject} {metric} on {shift} {percent(values)}")
    if families:
        found = [leave_out_families(cell) for cell in cells]
        print("\n| family left out: `style` / ECE of temperature / of shift-aware | " + " | ".join(names) + " |")
        print("|---" * (len(names) + 1) + "|")
        for family in FAMILIES:
            print(f"| {family} | " + " | ".join(one[family] for one in found) + " |")


def publish(grids: list[Path], folder: Path, tables: str) -> None:
    """The tables, with the commands that filled the grids."""
    commands = "\n".join(f"    {text}" for grid in grids for text in list_commands(ResultsFolder(grid)))
    text = f"# Style, spectrum, attribution and shift-aware on trained networks\n\n{ABOUT}\n{commands}\n\n{tables}"
    write_text(folder / "README.md", text)


ABOUT = """Made by `python tools/shift_study.py GRID … --to results/shift`. The rows are those of
[results](../README.md); oracle and sampling floor come from stored Outputs. A column is a network (model and seed):
CIFAR-10, backbone `fast`, preset `laptop` (`laptop-robust`: that preset, vanilla head), 45,000 images; fitted on the
5,000 held-out ones and their copies under the extras; 2,000 images a corrupted condition. What it means:
[docs/style.md](../../docs/style.md#what-was-measured). The grids were filled by
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grids", type=Path, nargs="+", metavar="GRID")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--to", type=Path, metavar="FOLDER")
    words = parser.parse_args()
    written = io.StringIO()
    with contextlib.redirect_stdout(written) if words.to else contextlib.nullcontext():
        study(words.grids, words.families)
    if words.to:
        publish(words.grids, words.to, written.getvalue())
        print(words.to / "README.md")


if __name__ == "__main__":
    main()
