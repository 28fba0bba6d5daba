"""A Classifier from any trained model that ends in a linear layer."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shiftprism._checks import wrong
from shiftprism.classifier._classifier import Classifier
from shiftprism.classifier._headless import Adapted, Headless, first_weights
from shiftprism.classifier._last_layer import Ending, find_ending
from shiftprism.classifier._preprocessing import Preprocessing
from shiftprism.heads import Head, Linear


def adapt(
    model: nn.Module,
    example: Tensor,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    names: Sequence[str] = (),
    preprocessing: Preprocessing | None = None,
    head: "str | Sequence[str] | None" = None,
    factory: "str | Callable[[], Any] | None" = None,
) -> Classifier:
    """A Classifier from any trained model that ends in a linear layer or one of our heads; the model stays as it is.

    The last layer may be `nn.Linear` or a 1 × 1 convolution before or after average pooling, normed, wrapped or adapted
    (LoRA); its features are its input, pooled. Two heads that are averaged become one on both their features. The model
    may return a tensor, a sequence, a table or an object with logits. The Classifier is where the model is, in the
    model's own precision; its head computes in at least float32.

    - `example`: a small batch of images as the Classifier will get them: uint8, or floats in [0, 1].
    - `mean`, `std`: those of the model's own preprocessing; leave them out when the model takes images in [0, 1].
    - `names`: the names of the classes.
    - `preprocessing`: its size, resize rule and channels; without it images are taken as they are.
    - `head`: the name of the last layer, or of those that are averaged, where there are several candidates.
    - `factory`: what makes the model's code, or its name "package.module:function". The name is saved with the
      Classifier to tell people what `Classifier.load(folder, model=…)` needs; nothing imports it from there.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> adapt(model, torch.rand(2, 1, 8, 8)).outputs(torch.rand(5, 1, 8, 8))
    Outputs(N=5, D=16, K=3)
    """
    copied = _copy(model).eval()
    weights = first_weights(copied)
    example = example.to(weights.device)
    rule = preprocessing or Preprocessing()
    # only its `normalise` is used here
    normaliser = _assemble(nn.Identity(), Linear(1, 1), mean, std, like=weights, preprocessing=rule)
    images = _make_probes(normaliser.normalise(example), normaliser)
    ending = _run(lambda: find_ending(copied, images.to(weights.dtype), head))
    cuts, last, expected = ending
    headless = Headless(copied, cuts, expected.shape[1])
    adapted = _assemble(headless, last, mean, std, like=weights, preprocessing=rule, names=names).eval()
    adapted.adapted = Adapted(_name_factory(factory), cuts, tuple(images.shape[1:]))
    _compare(adapted, images, ending)
    return adapted


def _copy(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise wrong("model", "an nn.Module", type(model).__name__, "wrap it in one, or use Outputs.from_logits")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    if isinstance(model, torch.jit.ScriptModule):
        advice = "pass the module that was scripted or traced"
        raise wrong(
            "model", "a module of Python code", "a TorchScript module, whose layers cannot be taken out", advice
        )
    # torch copies no tensor with a history, such as the weight that a norm has computed
    computed = [
        value
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and value.grad_fn is not None
    ]
    try:
        return copy.deepcopy(model, {id(value): value.detach().clone() for value in computed})
    except (RuntimeError, TypeError) as error:
        got = f"one that cannot be copied ({error})"
        raise wrong("model", "a module that copy.deepcopy takes", got, "build a Classifier yourself") from error


def _make_probes(images: Tensor, normaliser: Classifier) -> Tensor:
    """The normalised example and its negative: what holds for both by chance is rare, also for a single grey image."""
    pixels = images * normaliser.std + normaliser.mean
    return torch.cat([images, (1 - pixels - normaliser.mean) / normaliser.std])


def _run(work: Callable[[], Ending]) -> Ending:
    try:
        return work()
    except (RuntimeError, TypeError, AttributeError, IndexError, NotImplementedError) as error:
        got = f"ones that it fails on ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        raise wrong(
            "example", "images that the model takes", got, "pass a batch of its own size and channels"
        ) from error


def _assemble(
    backbone: nn.Module, head: Head, mean: Sequence[float], std: Sequence[float], like: Tensor, **more: Any
) -> Classifier:
    """A Classifier that normalises where `like` is, in its precision but at least in float32."""
    classifier = Classifier(backbone, head, mean, std, **more)
    dtype = torch.promote_types(like.dtype, torch.float32)
    classifier.pixel_statistics.to(like.device, dtype)
    for name, values in (("mean", mean), ("std", std)):
        setattr(classifier, name, torch.tensor(list(values), dtype=dtype, device=like.device)[:, None, None])
    return classifier


def _compare(adapted: Classifier, images: Tensor, ending: Ending) -> None:
    """Refuse a Classifier whose logits are not the model's."""
    expected = ending.logits
    # Our head rounds W f before it adds b, nn.Linear may not: 1e-4 is far above that in float32, too little in halves.
    # A mean over many places in halves is rounded at each of them.
    rounding = (4 if ending.cuts[0].reduction == "flat" else 16) * torch.finfo(expected.dtype).eps
    with torch.no_grad():
        size = float(expected.abs().max())
        logits = adapted.head(_run_backbone(adapted, images)).to(expected.dtype)  # our head is in float32 or wider
        if not torch.allclose(logits, expected, rtol=max(1e-4, rounding), atol=max(1e-5, rounding * size)):
            got = "one with other logits once its last layer is taken out"
            raise wrong("model", "one that uses its last layer once", got, "build a Classifier yourself")


def _run_backbone(adapted: Classifier, images: Tensor) -> Tensor:
    try:
        features: Tensor = adapted.backbone(images)
    except (RuntimeError, TypeError, AttributeError) as error:
        got = f"one that fails once its last layer is taken out ({type(error).__name__}: {error})"
        raise wrong("model", "one that only calls its last layer", got, "build a Classifier yourself") from error
    return features


def _name_factory(factory: "str | Callable[[], Any] | None") -> str | None:
    if factory is None or isinstance(factory, str):
        return factory
    return f"{factory.__module__}:{factory.__qualname__}"
