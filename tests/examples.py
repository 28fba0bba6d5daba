"""Outputs and classifiers that several rooms are tried on."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from shiftprism.heads import HEADS, Head, Linear
from shiftprism.outputs import Outputs


def head_of(name: str, features: int = 6, classes: int = 4, seed: int = 0) -> Head:
    """A head in evaluation mode, in float64, so that identities hold to rounding."""
    torch.manual_seed(seed)
    return HEADS[name](features, classes).double().eval()


def features_of(samples: int = 20, features: int = 6, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Non-negative, as after a ReLU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, features, dtype=torch.float64, generator=generator).relu() * scale


def outputs_of(name: str = "vanilla", samples: int = 20, features: int = 6, classes: int = 4, seed: int = 0) -> Outputs:
    """What a fresh head says about random features."""
    with torch.no_grad():
        return head_of(name, features, classes, seed).outputs(features_of(samples, features, seed + 1))


@st.composite
def many_outputs(draw: st.DrawFn) -> Outputs:
    """Outputs of any head, size and scale, feature 0 and huge ones among them."""
    name = draw(st.sampled_from(sorted(HEADS)))
    samples, features, classes = draw(st.integers(1, 12)), draw(st.integers(1, 8)), draw(st.integers(1, 7))
    scale = 10.0 ** draw(st.integers(-12, 12))
    values = features_of(samples, features, draw(st.integers(0, 99)), scale)
    values[0] *= draw(st.sampled_from([0.0, 1.0]))
    with torch.no_grad():
        return head_of(name, features, classes, draw(st.integers(0, 99))).outputs(values)


def head() -> Head:
    torch.manual_seed(5)
    return Linear(6, 4, bias=True).double()


def draw_outputs(samples: int = 120, seed: int = 1, width: int = 6) -> Outputs:
    """Clustered, correlated features far from 0."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    values = torch.randn(samples, width, dtype=torch.float64, generator=generator) @ mix
    values += 5 * torch.eye(width, dtype=torch.float64)[torch.arange(samples) % 4] + 20
    with torch.no_grad():
        return (head() if width == 6 else Linear(width, 4).double()).outputs(values)._replace(style=values.clone())
