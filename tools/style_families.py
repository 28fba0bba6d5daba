"""What a family of extras gives and costs the score `style`: pixels alone, no network, no test corruption.

Run with: .venv/bin/python tools/style_families.py [--root DATA] [--without resampling]

Fitted to 3,000 training images of CIFAR-10 and 125 copies of some under each extra at severities 1, 3 and 5; judged on
1,000 others and 125 copies of some. Each family is left out of the fit in turn, and its own AUROC is printed (in %, the
mean of its extras and severities); the last column is the mean of all extras when none is left out. `--without` names a
family that no fit sees: its column is then that of the other families, fitted without it.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from shiftprism.corruptions import FAMILIES, corrupt
from shiftprism.datasets import load
from shiftprism.heads import Linear
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import Style
from shiftprism.style import PixelStatistics

FITTED, JUDGED, COPIES = 3000, 1000, 125
SEVERITIES = (1, 3, 5)
STATISTICS = PixelStatistics()


def read_style(images: Tensor) -> Outputs:
    """Outputs whose style is that of the pixels, and nothing else of any use."""
    style = torch.cat([STATISTICS(part) for part in images.split(500)])
    return Linear(1, 2).outputs(torch.zeros(len(images), 1))._replace(style=style)


def make_copies(images: Tensor, first: int) -> dict[tuple[str, int], Outputs]:
    """By extra and severity: COPIES images each, other ones for each condition."""
    names = [name for family in FAMILIES.values() for name in family]
    copies = {}
    for number, (name, severity) in enumerate((name, severity) for name in names for severity in SEVERITIES):
        rows = (COPIES * number + torch.arange(COPIES)) % len(images)
        copies[name, severity] = read_style(corrupt(images[rows], name, severity, seeds=first + rows))
    return copies


def fit(clean: Outputs, copies: dict[tuple[str, int], Outputs], left_out: set[str]) -> Style:
    names = dict.fromkeys(name for name, _ in copies if name not in left_out)
    shifted = {name: Outputs.concat([copies[name, severity] for severity in SEVERITIES]) for name in names}
    return Style.fit(clean, shifted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--without", choices=FAMILIES)
    words = parser.parse_args()
    images = load("cifar10", "train", words.root).images
    parts = images[:FITTED], images[FITTED : FITTED + JUDGED]
    clean, others = map(read_style, parts)
    fitted, judged = make_copies(parts[0], 0), make_copies(parts[1], FITTED)
    never = set(FAMILIES[words.without]) if words.without else set()

    def judge(style: Style, names: tuple[str, ...]) -> dict[str, float]:
        usual = style(others)
        return {
            name: sum(100 * auroc(usual, style(judged[name, severity])) for severity in SEVERITIES) / len(SEVERITIES)
            for name in names
        }

    means = {}
    for family, names in FAMILIES.items():
        found = judge(fit(clean, fitted, never | set(names)), names)
        means[family] = sum(found.values()) / len(found)
        print(f"{family} left out: {', '.join(f'{name} {value:.1f}' for name, value in found.items())}", flush=True)
    found = judge(fit(clean, fitted, never), tuple(name for names in FAMILIES.values() for name in names))
    print(f"none left out: {', '.join(f'{name} {value:.1f}' for name, value in found.items())}")
    older = [value for family, value in means.items() if family != "resampling"]
    print(f"| {' | '.join(means)} | mean of the eight others | all extras, none left out |")
    cells = (*means.values(), sum(older) / len(older), sum(found.values()) / len(found))
    print("| " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
