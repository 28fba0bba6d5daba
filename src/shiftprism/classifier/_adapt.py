"""A Classifier from any trained model that ends in a linear layer."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.classifier._classifier import Classifier
from shiftprism.heads import Head, Linear


def adapt(
    model: nn.Module, example: Tensor, mean: Sequence[float] = (0.0,), std: Sequence[float] = (1.0,)
) -> Classifier:
    """A Classifier from any trained model that ends in `nn.Linear` or one of our heads; the model stays as it is.

    The Classifier is where the model is, in the model's own precision; its head computes in at least float32.

    `example` is a small batch of images as the Classifier will get them: uint8, or floats in [0, 1]. `mean` and `std`
    are those of the model's own preprocessing; leave them out when the model takes images in [0, 1].

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> adapt(model, torch.rand(2, 1, 8, 8)).outputs(torch.rand(5, 1, 8, 8))
    Outputs(N=5, D=16, K=3)
    """
    copied = copy.deepcopy(model).eval()
    weights = _first_weights(copied)
    example = example.to(weights.device)
    # only its `normalise` is used here
    images = _assemble(nn.Identity(), Linear(1, 1), mean, std, like=weights).normalise(example)
    layer, expected = _find_last_layer(copied, images.to(weights.dtype))
    head = _as_head(copied.get_submodule(layer))
    adapted = _assemble(_Headless(copied, layer, weights), head, mean, std, like=weights).eval()
    # Our head rounds W f before it adds b, nn.Linear may not: 1e-4 is far above that in float32, too little in halves.
    rounding = 4 * torch.finfo(expected.dtype).eps
    with torch.no_grad():
        size = float(expected.abs().max())
        logits = adapted(example).to(expected.dtype)  # our head computes in float32, whatever the model's precision
        if not torch.allclose(logits, expected, rtol=max(1e-4, rounding), atol=max(1e-5, rounding * size)):
            got = "one with other logits once its last layer is taken out"
            raise wrong("model", "one that uses its last layer once", got, "build a Classifier yourself")
    return adapted


def _first_weights(model: nn.Module) -> Tensor:
    """A tensor on the device and of the type that the model computes in: its first parameter or buffer of floats."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))


def _assemble(backbone: nn.Module, head: Head, mean: Sequence[float], std: Sequence[float], like: Tensor) -> Classifier:
    """A Classifier that normalises where `like` is, in its precision but at least in float32."""
    classifier = Classifier(backbone, head, mean, std)
    dtype = torch.promote_types(like.dtype, torch.float32)
    classifier.pixel_statistics.to(like.device, dtype)
    for name, values in (("mean", mean), ("std", std)):
        setattr(classifier, name, torch.tensor(list(values), dtype=dtype, device=like.device)[:, None, None])
    return classifier


def _find_last_layer(model: nn.Module, images: Tensor) -> tuple[str, Tensor]:
    """The name of the layer whose output is the model's own, and that output."""
    layer_outputs: dict[str, Tensor] = {}

    def remember(name: str) -> Any:
        return lambda module, inputs, output: layer_outputs.update({name: output})

    hooks = [
        module.register_forward_hook(remember(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Head)
    ]
    with torch.no_grad():
        logits = _logits(model(images))
    for hook in hooks:
        hook.remove()
    equal = [name for name, output in layer_outputs.items() if output is logits or torch.equal(output, logits)]
    if not equal or logits.ndim != 2:
        shape, count = tuple(logits.shape), len(layer_outputs)
        got = f"a model whose output of shape {shape} is that of none of {count} linear layers"
        advice = "end the model in nn.Linear or a shiftprism head, without softmax, or build a Classifier yourself"
        raise wrong("model", "one that ends in its last linear layer", got, advice)
    if logits.shape[1] < 2:
        advice = "give it two outputs: what is computed here compares the logits of classes"
        raise wrong("model", "a classifier of two classes or more", "one with a single logit", advice)
    return equal[-1], logits


class _Headless(nn.Module):
    """A model whose last layer returns its input, so that the model returns the features."""

    like: Tensor

    def __init__(self, model: nn.Module, last: str, weights: Tensor) -> None:
        super().__init__()
        # a buffer that no file holds, so that `.half()` and `.double()` change it with the model
        self.register_buffer("like", weights.new_empty(0), persistent=False)
        self.model = model if last else nn.Identity()
        if last:
            parent, _, name = last.rpartition(".")
            setattr(model.get_submodule(parent), name, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        return _logits(self.model(images.to(self.like.dtype)))


def _logits(output: Any) -> Tensor:
    """The logits a model returns: a tensor, or an object that holds them as `.logits`, as in transformers."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise wrong("model", "one that returns logits", type(output).__name__, "wrap it so that it returns one tensor")
    return logits


def _as_head(layer: nn.Module) -> Head:
    if isinstance(layer, Head):
        return layer
    assert isinstance(layer, nn.Linear)
    head = Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    head.to(layer.weight)
    head.load_state_dict(layer.state_dict())
    return head
