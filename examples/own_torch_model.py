"""A model from your own training loop gets a detector: python examples/own_torch_model.py

The model knows the handwritten digits 0 to 7. New digits, blurred ones and the digits 8 and 9 are then judged.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import shiftprism
from shiftprism.corruptions import corrupt

MEAN, STD = [0.3], [0.38]


def make() -> nn.Module:
    """The code of the model; the last layer is linear, which is all that `adapt` asks for."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 8),
    )  # fmt: skip


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 (N, 1, 8, 8) in random order, and the digits."""
    digits = load_digits()
    images = (torch.from_numpy(digits.images) * 255 / 16).to(torch.uint8)[:, None]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order], torch.from_numpy(digits.target)[order]


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Any loop of yours."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(25):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model((images[rows] / 255 - MEAN[0]) / STD[0]), labels[rows])
            loss.backward()
            optimizer.step()


def main() -> None:
    images, labels = load()
    known = labels < 8
    unseen, images, labels = images[~known], images[known], labels[known]
    model = make()
    train(model, images[:600], labels[:600])

    classifier = shiftprism.adapt(model.eval(), images[:8], mean=MEAN, std=STD, names=[*"01234567"])
    detector = shiftprism.Detector.fit(classifier, images[600:1100], labels[600:1100])  # never trained on
    new = images[1100:]
    print(detector(corrupt(new, "motion_blur", 5))[0])
    for name, part in {"new": new, "blurred": corrupt(new, "motion_blur", 5), "8 and 9": unseen}.items():
        print(f"{name:8} {len(part):4} images: {detector(part).counts()}")

    detector.save("digits-detector")
    loaded = shiftprism.Detector.load("digits-detector", model=make)  # the code is yours, the weights are in the folder
    assert loaded(new).counts() == detector(new).counts()


if __name__ == "__main__":
    main()
