"""An image classifier of Hugging Face's transformers gets a detector: python examples/hugging_face_model.py [NAME]

NAME, such as google/vit-base-patch16-224, is downloaded from the Hub. Without it a small ViT with random weights shows
the calls, not the quality. The images are scikit-learn's digits; use a few hundred held-out images of your own.
"""

import sys

import torch
from transformers import AutoImageProcessor, AutoModelForImageClassification, PreTrainedModel, ViTConfig, ViTForImageClassification

import shiftprism
from shiftprism.classifier import Preprocessing
from shiftprism.corruptions import corrupt
from shiftprism.datasets import load

HALF = (0.5, 0.5, 0.5)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def load_model(name: str) -> tuple[PreTrainedModel, int, tuple[float, ...], tuple[float, ...]]:
    """The model, the side of its images, and the mean and deviation that it was trained with."""
    if not name:
        torch.manual_seed(0)
        model = ViTForImageClassification(ViTConfig(**SMALL, image_size=32, patch_size=8, num_labels=10))
        return model.eval(), 32, HALF, HALF
    processor = AutoImageProcessor.from_pretrained(name)
    size = processor.size.get("height") or processor.size["shortest_edge"]
    model = AutoModelForImageClassification.from_pretrained(name)
    return model.eval(), size, tuple(processor.image_mean), tuple(processor.image_std)


def main(name: str = "", count: int = 200) -> None:
    model, side, mean, std = load_model(name)
    names = [model.config.id2label[number] for number in range(model.config.num_labels)]
    rule = Preprocessing(size=(side, side), resize=side, channels=3)
    example = torch.rand(2, 3, side, side)
    classifier = shiftprism.adapt(model, example, mean=mean, std=std, names=names, preprocessing=rule)

    images = load("digits", "train").images[:count].repeat(1, 3, 1, 1)
    detector = shiftprism.Detector.fit(classifier, images, concept="energy")  # no labels: nothing is calibrated
    print(f"{type(model).__name__}: {classifier.outputs(images[:1])}")
    print("as they are:", detector(images[:50]).counts())
    print("noisy:      ", detector(corrupt(images[:50], "gaussian_noise", 5)).counts())


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "")
