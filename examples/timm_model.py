"""A model of timm gets a detector: python examples/timm_model.py [NAME] [--pretrained]

Without --pretrained the weights are random and nothing is downloaded: it shows the calls, not the quality. The images
are parts of the two photographs that come with scikit-learn; use a few hundred held-out images of your own.
"""

import sys

import timm
import torch
from sklearn.datasets import load_sample_images

import shiftprism
from shiftprism.classifier import Preprocessing
from shiftprism.corruptions import corrupt


def cut_photographs(count: int, side: int) -> torch.Tensor:
    """Square parts of two photographs, uint8 (N, 3, side, side)."""
    photographs = [torch.tensor(one).permute(2, 0, 1) for one in load_sample_images().images]
    generator, parts = torch.Generator().manual_seed(0), []
    for number in range(count):
        photograph = photographs[number % 2]
        top, left = (int(torch.randint(size - side, (1,), generator=generator)) for size in photograph.shape[1:])
        parts.append(photograph[:, top : top + side, left : left + side])
    return torch.stack(parts)


def main(name: str = "resnet18", pretrained: bool = False, count: int = 150, side: int = 96) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=pretrained).eval()
    wanted = timm.data.resolve_model_data_config(model)  # what the weights were trained with
    height, width = (side, side) if not pretrained else wanted["input_size"][1:]
    rule = Preprocessing(size=(height, width), resize=int(height / wanted["crop_pct"]), channels=3)

    images = cut_photographs(count, side)
    classifier = shiftprism.adapt(
        model, torch.rand(2, 3, height, width), mean=wanted["mean"], std=wanted["std"], preprocessing=rule
    )
    detector = shiftprism.Detector.fit(classifier, images, concept="energy")  # no labels: nothing is calibrated
    print(f"{name}: {classifier.outputs(images[:1])}")
    print("as they are:", detector(images[:50]).counts())
    print("noisy:      ", detector(corrupt(images[:50], "gaussian_noise", 5)).counts())


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--pretrained"] or ["resnet18"]
    main(words[0], "--pretrained" in sys.argv)
