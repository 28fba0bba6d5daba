"""Models as people have them: one of each shape, with hand-made layers of each kind."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from shiftprism.heads import Geometric

K, D = 5, 12
MEAN, STD = (0.2, 0.3, 0.4), (0.5, 0.6, 0.7)


def pictures(count: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8, generator=generator)


def normalise(images: Tensor) -> Tensor:
    return (images.float() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def features_of(model: nn.Module, name: str, images: Tensor) -> Tensor:
    """The input of a layer, by a hook of the test's own."""
    seen: list[Tensor] = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    with torch.no_grad():
        model(images)
    hook.remove()
    return seen[-1]


class Body(nn.Module):
    """A small convolutional network: maps (N, D, 4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, D, 3, stride=4, padding=1), nn.BatchNorm2d(D), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps


class Net(nn.Module):
    """Body, pooling, head; `wrap` makes what the model returns of the logits and features."""

    def __init__(
        self, head: nn.Module, wrap: Callable[[Tensor, Tensor], Any] = lambda logits, features: logits
    ) -> None:
        super().__init__()
        self.body, self.fc, self.wrap = Body(), head, wrap

    def forward(self, images: Tensor) -> Any:
        features = self.body(images).mean((2, 3))
        return self.wrap(self.fc(features), features)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().eval()


class Reply:
    """An object with logits, as in transformers."""

    def __init__(self, logits: Tensor) -> None:
        self.loss, self.logits = None, logits


class Pair(NamedTuple):
    embedding: Tensor
    scores: Tensor


class LoRA(nn.Linear):
    """A subclass of nn.Linear with W + B A in place of W; B is 0 in a fresh one."""

    def __init__(self, width: int, classes: int, fresh: bool) -> None:
        super().__init__(width, classes)
        self.a, self.b = nn.Parameter(torch.randn(2, width)), nn.Parameter(torch.randn(classes, 2))
        if fresh:
            nn.init.zeros_(self.b)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + input @ self.a.T @ self.b.T


class Adapter(nn.Module):
    """A wrapper as PEFT makes it: a base layer and two more beside it."""

    def __init__(self, fresh: bool) -> None:
        super().__init__()
        self.base_layer = nn.Linear(D, K)
        self.lora_a = nn.ModuleDict({"default": nn.Linear(D, 2, bias=False)})
        self.lora_b = nn.ModuleDict({"default": nn.Linear(2, K, bias=False)})
        self.dropout = nn.Dropout(0.5)
        if fresh:
            nn.init.zeros_(self.lora_b["default"].get_parameter("weight"))

    def forward(self, inputs: Tensor) -> Tensor:
        added: Tensor = self.lora_b["default"](self.lora_a["default"](self.dropout(inputs)))
        logits: Tensor = self.base_layer(inputs) + added
        return logits


def old_norm(kind: str) -> nn.Module:
    """The norms of earlier versions of torch, by hooks; a pass with gradients leaves a weight that has a history."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer: nn.Module = getattr(nn.utils, kind)(nn.Linear(D, K))
    layer(torch.rand(2, D))
    return layer


HEADS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, K),
    "without bias": lambda: nn.Linear(D, K, bias=False),
    "in a sequence": lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(D, K), nn.Dropout(0.5), nn.Identity()),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(D, K)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(D, K)),
    "older weight norm": lambda: old_norm("weight_norm"),
    "older spectral norm": lambda: old_norm("spectral_norm"),
    "subclass": lambda: LoRA(D, K, fresh=False),
    "fresh subclass": lambda: LoRA(D, K, fresh=True),
    "adapter": lambda: Adapter(fresh=False),
    "fresh adapter": lambda: Adapter(fresh=True),
    "ours": lambda: Geometric(D, K),
}


class Convolutional(nn.Module):
    """A convolution as the last layer: before or after pooling."""

    def __init__(self, last: nn.Module, before: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.body, self.before, self.last, self.after = Body(), before, last, after

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.after(self.last(self.before(self.body(images)))).flatten(1)
        return logits


POOLED: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "after pooling": (lambda: nn.Conv2d(D, K, 1), lambda: nn.AdaptiveAvgPool2d(1), nn.Identity),
    "before pooling": (lambda: nn.Conv2d(D, K, 1), nn.Identity, lambda: nn.AdaptiveAvgPool2d(1)),
    "dropout between": (lambda: nn.Conv2d(D, K, 1, bias=False), lambda: nn.Dropout2d(0.5), lambda: nn.AvgPool2d(4)),
    "normed": (
        lambda: parametrizations.weight_norm(nn.Conv2d(D, K, 1)),
        nn.Identity,
        lambda: nn.AdaptiveAvgPool2d((1, 1)),
    ),
}


class Tokens(nn.Module):
    """A transformer's ending: tokens (N, T, D), of which the first, or the mean, goes through the head."""

    def __init__(self, pick: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.norm, self.head, self.pick = Body(), nn.LayerNorm(D), nn.Linear(D, K), pick

    def forward(self, images: Tensor) -> Tensor:
        return self.pick(self.head(self.norm(self.body(images).flatten(2).transpose(1, 2))))


class Distilled(nn.Module):
    """Two heads on two features, as distilled DeiT (linear) and LeViT (normed and linear) have them."""

    def __init__(self, normed: bool, combine: Callable[[Tensor, Tensor], Any] = lambda a, b: (a + b) / 2) -> None:
        super().__init__()
        self.body, self.combine = Body(), combine
        norm = nn.BatchNorm1d(D) if normed else nn.Identity()
        self.head, self.head_dist = nn.Sequential(norm, nn.Linear(D, K)), nn.Sequential(norm, nn.Linear(D, K))

    def forward(self, images: Tensor) -> Any:
        maps = self.body(images)
        return self.combine(self.head(maps[:, :, 0].mean(2)), self.head_dist(maps[:, :, 1:].mean((2, 3))))
