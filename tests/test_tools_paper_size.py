"""tools/paper_size.py: counted operations are those of closed forms and of the literature."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from shiftprism.backbones import BACKBONES

TOOL = Path(__file__).parents[1] / "tools" / "paper_size.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_size", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_multiply_adds_are_those_of_the_closed_form(tool: ModuleType) -> None:
    network = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(5 * 16 * 16, 7))
    assert tool.count_multiply_adds(network) == 16 * 16 * 5 * 3 * 9 + 5 * 16 * 16 * 7
    assert not any(module._forward_hooks for module in network.modules())


def test_the_papers_network_has_the_operations_of_the_literature(tool: ModuleType) -> None:
    """WRN-28-10 on 32 × 32: 5.2 G multiply-adds and 36.5 M parameters (Zagoruyko and Komodakis; Huang et al. 2018)."""
    with torch.device("meta"):
        backbone = BACKBONES["wrn-28-10"]()
    assert tool.count_multiply_adds(backbone) == pytest.approx(5.2e9, rel=0.02)
    assert sum(one.numel() for one in backbone.parameters()) == pytest.approx(36.5e6, rel=0.01)


def test_hours_follow_from_operations(tool: ModuleType) -> None:
    """By hand: 200 epochs of 50,000 images, three passes each, and 806,032 measured, at 2 · 5e9 operations an image."""
    seconds = 2 * 5e9 * (3 * 200 * 50_000 + 806_032) / (0.5 * 1e14)
    assert tool.hours_of_network(int(5e9), 0.5, 1e14) == pytest.approx(seconds / 3600)
    one, three = tool.count_grid(1), tool.count_grid(3)
    assert three.networks == 3 * one.networks
    assert one.units == one.networks + 2  # DUQ counts twice, on two data sets
