"""Which architectures of timm and transformers `adapt` takes, each with random weights.

    python tools/adapt_zoo.py --install FOLDER          # what they need, without torch, into a folder of its own
    PYTHONPATH=FOLDER python tools/adapt_zoo.py timm    # or transformers; or timm resnet18 vit_tiny_patch16_224 …

One line a model: its number of features and classes and the largest difference of logits, or the reason for refusing
it. Both import torchvision, whose wheels register operators of CUDA builds: that registration is left out here.
torchvision belongs into no environment of ours: it breaks other packages.
"""

import argparse
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shiftprism import adapt

PACKAGES = ("timm", "torchvision", "transformers", "tokenizers", "regex")
# fmt: off
TIMM = (
    "resnet18", "resnext50_32x4d", "wide_resnet50_2", "vgg11_bn", "densenet121", "mobilenetv3_small_100",
    "efficientnet_b0", "efficientnet_lite0", "regnety_002", "convnext_atto", "convnextv2_atto", "inception_v3",
    "inception_v4", "xception41", "dpn68", "nfnet_l0", "ghostnet_100", "mnasnet_100", "hardcorenas_a",
    "tresnet_m", "vit_tiny_patch16_224", "deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224",
    "swin_tiny_patch4_window7_224", "levit_128s", "levit_conv_128s", "levit_256d", "mixer_s32_224",
    "poolformer_s12", "cait_xxs24_224", "beit_base_patch16_224", "volo_d1_224", "coat_tiny",
    "pit_ti_distilled_224", "xcit_nano_12_p16_224", "efficientformer_l1", "edgenext_xx_small",
    "maxvit_rmlp_pico_rw_256", "eva02_tiny_patch14_224", "fastvit_t8", "repvgg_a0", "hrnet_w18_small", "dla34",
    "rexnet_100", "resmlp_12_224", "gmlp_s16_224", "twins_pcpvt_small", "pvt_v2_b0", "tiny_vit_5m_224",
    "crossvit_tiny_240",
)
# fmt: on
_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
_VIT = {**_SMALL, "image_size": 32, "patch_size": 8}, 32
TRANSFORMERS: dict[str, tuple[dict[str, Any], int]] = {
    "ViTForImageClassification": _VIT,
    "DeiTForImageClassification": _VIT,
    "DeiTForImageClassificationWithTeacher": _VIT,
    "BeitForImageClassification": _VIT,
    "Dinov2ForImageClassification": _VIT,
    "ViTMSNForImageClassification": _VIT,
    "ResNetForImageClassification": ({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, 32),
    "ConvNextForImageClassification": ({"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, 32),
    "SwinForImageClassification": (
        {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        32,
    ),
    "MobileNetV2ForImageClassification": ({"image_size": 64}, 64),
    "MobileViTForImageClassification": ({"image_size": 64}, 64),
    "LevitForImageClassification": ({}, 224),
    "LevitForImageClassificationWithTeacher": ({}, 224),
    "PoolFormerForImageClassification": ({}, 224),
}
"""Settings of the config, and the side of its images."""


def main() -> None:
    """Install, or adapt what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?", choices=("timm", "transformers"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--install", type=Path)
    options = parser.parse_args()
    if options.install:
        install(options.install)
    if options.library:
        name = "torchvision._meta_registrations"
        sys.modules[name] = types.ModuleType(name)
        makers = {"timm": make_timm, "transformers": make_transformers}[options.library]
        for name, model, size in makers(options.names):
            print(f"{name}: {describe(model, size)}", flush=True)


def install(folder: Path) -> None:
    """Put the packages into a folder, without what they depend on: torch must stay the one that is there."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), *PACKAGES], check=True)


def make_timm(names: list[str]) -> Iterator[tuple[str, nn.Module, int]]:
    """Architectures of timm by name."""
    import timm  # type: ignore[import-not-found, unused-ignore]

    for each in names or TIMM:
        torch.manual_seed(0)
        try:
            model = timm.create_model(each, num_classes=10)
        except RuntimeError as error:
            print(f"{each}: not made ({error})")
            continue
        yield each, model, model.default_cfg["input_size"][-1]


def make_transformers(names: list[str]) -> Iterator[tuple[str, nn.Module, int]]:
    """Classifiers of transformers from a config, small where it can be."""
    import transformers  # type: ignore[import-not-found, unused-ignore]

    for name in names or TRANSFORMERS:
        settings, size = TRANSFORMERS[name]
        torch.manual_seed(0)
        config = getattr(transformers, f"{name.partition('ForImage')[0]}Config")(num_labels=10, **settings)
        yield name, getattr(transformers, name)(config), size


def describe(model: nn.Module, size: int) -> str:
    """D, K and how far the logits are from the model's own, or why it is refused."""
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    try:
        classifier = adapt(model, images)
    except ValueError as error:
        return f"refused: {error}"
    others = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model.eval()(others)
        expected = getattr(expected, "logits", expected)
        outputs = classifier.outputs(others)
    difference = float((outputs.logits - expected).abs().max() / expected.abs().max())
    assert classifier.adapted is not None
    layers = ", ".join(f"{cut.layer} ({cut.reduction})" for cut in classifier.adapted.cuts)
    return f"D={outputs.D} K={outputs.K} S={outputs.S} relative difference {difference:.0e}; {layers}"


if __name__ == "__main__":
    main()
