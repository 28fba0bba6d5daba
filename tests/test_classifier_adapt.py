"""`adapt` takes what people have: heads of every shape, outputs of every type; what does not fit is refused."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adapt_examples import (
    HEADS,
    MEAN,
    POOLED,
    STD,
    Body,
    Convolutional,
    D,
    Distilled,
    K,
    LoRA,
    Net,
    Pair,
    Reply,
    Tokens,
    features_of,
    normalise,
    pictures,
    seeded,
)
from shiftprism import adapt
from shiftprism.backbones import BACKBONES
from shiftprism.classifier import Preprocessing

SHARED = Path(os.environ.get("SHIFTPRISM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
RETURNS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tensor": lambda logits, features: logits,
    "tuple": lambda logits, features: (logits, features),
    "features first": lambda logits, features: (features, logits),
    "list": lambda logits, features: [None, logits],
    "dict": lambda logits, features: {"features": features, "logits": logits},
    "dict without that name": lambda logits, features: {"pooled": features, "prediction": logits},
    "object": lambda logits, features: Reply(logits),
    "named tuple": Pair,
    "dropout": lambda logits, features: nn.functional.dropout(logits, 0.5, training=False),
}


@pytest.mark.parametrize("kind", RETURNS)
def test_whatever_a_model_returns_its_logits_are_found(kind: str) -> None:
    model = seeded(lambda: Net(nn.Linear(D, K), RETURNS[kind]))
    classifier = adapt(model, pictures(2), MEAN, STD)
    features = features_of(model, "fc", normalise(pictures()))
    outputs = classifier.outputs(pictures())
    torch.testing.assert_close(outputs.features, features)
    torch.testing.assert_close(outputs.logits, model.get_submodule("fc")(features))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", HEADS)
def test_every_head_that_is_linear_is_found(kind: str, dtype: torch.dtype) -> None:
    model = seeded(lambda: Net(HEADS[kind]()).to(dtype))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    classifier = adapt(model, pictures(2), MEAN, STD)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    images = normalise(pictures()).to(dtype)
    outputs, logits = classifier.outputs(pictures()), model(images)
    coarse = {torch.bfloat16: 5e-2, torch.float16: 1e-2}.get(dtype, 1e-4)
    torch.testing.assert_close(outputs.logits, logits.to(outputs.logits.dtype), rtol=coarse, atol=coarse)
    features = features_of(model, "fc", images)
    torch.testing.assert_close(outputs.features, features.to(outputs.features.dtype), rtol=coarse, atol=coarse)
    assert (outputs.D, outputs.K, outputs.logits.dtype) == (D, K, torch.promote_types(dtype, torch.float32))


def test_a_merged_adapter_has_the_weight_that_it_computes_with() -> None:
    """W + B A, by hand."""
    layer = LoRA(D, K, fresh=False)
    classifier = adapt(seeded(lambda: Net(layer)), pictures(2), MEAN, STD)
    torch.testing.assert_close(classifier.head.get_parameter("weight"), layer.weight + layer.b @ layer.a)
    torch.testing.assert_close(classifier.head.get_parameter("bias"), layer.bias)


@pytest.mark.parametrize("kind", POOLED)
def test_a_convolution_is_a_head_on_pooled_features(kind: str) -> None:
    last, before, after = POOLED[kind]
    model = seeded(lambda: Convolutional(last(), before(), after()))
    classifier = adapt(model, pictures(2), MEAN, STD)
    outputs = classifier.outputs(pictures())
    torch.testing.assert_close(outputs.logits, model(normalise(pictures())))
    torch.testing.assert_close(outputs.features, features_of(model, "last", normalise(pictures())).mean((2, 3)))
    assert outputs.D == D


def test_a_convolution_that_covers_its_input_is_a_head_on_all_of_it() -> None:
    model = seeded(lambda: Convolutional(nn.Conv2d(D, K, 4), nn.Identity(), nn.Identity()))
    outputs = adapt(model, pictures(2), MEAN, STD).outputs(pictures())
    torch.testing.assert_close(outputs.logits, model(normalise(pictures())))
    torch.testing.assert_close(outputs.features, features_of(model, "last", normalise(pictures())).flatten(1))


@pytest.mark.parametrize(
    ("last", "after"),
    [
        (lambda: nn.Conv2d(D, K, 3, padding=1), lambda: nn.AdaptiveAvgPool2d(1)),  # 3 × 3: its edges see fewer places
        (lambda: nn.Conv2d(D, K, 1), lambda: nn.AdaptiveMaxPool2d(1)),
        (lambda: nn.Conv2d(D, K, 1, stride=2), lambda: nn.AdaptiveAvgPool2d(1)),
    ],
)
def test_a_convolution_whose_logits_are_not_linear_in_pooled_features_is_refused(last: Any, after: Any) -> None:
    with pytest.raises(ValueError, match="Expected `model` to be one that ends in its last linear layer"):
        adapt(seeded(lambda: Convolutional(last(), nn.Identity(), after())), pictures(2))


def test_squeezenet_is_refused_in_words() -> None:
    """Convolution, ReLU, average pooling: in place, so that the convolution's own output is overwritten."""
    after = nn.Sequential(nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))
    model = seeded(lambda: Convolutional(nn.Conv2d(D, K, 1), nn.Dropout(0.5), after))
    problem = r"is the mean of 'last' after a ReLU, which is not linear .*'last' \(Conv2d\)\); name the layer as head=…"
    with pytest.raises(ValueError, match=problem):
        adapt(model, pictures(2))


@pytest.mark.parametrize("pick", [lambda tokens: tokens[:, 0], lambda tokens: tokens.mean(1)])
def test_a_head_on_every_token_is_one_on_the_token_that_counts(pick: Callable[[Tensor], Tensor]) -> None:
    model = seeded(lambda: Tokens(pick))
    outputs = adapt(model, pictures(2), MEAN, STD).outputs(pictures())
    torch.testing.assert_close(outputs.logits, model(normalise(pictures())))
    torch.testing.assert_close(outputs.features, pick(features_of(model, "head", normalise(pictures()))))


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("combine", [lambda a, b: (a + b) / 2, lambda a, b: a + b])
def test_two_averaged_heads_are_one_on_both_features(normed: bool, combine: Callable[[Tensor, Tensor], Any]) -> None:
    model = seeded(lambda: Distilled(normed, combine))
    outputs = adapt(model, pictures(2), MEAN, STD).outputs(pictures())
    assert outputs.D == 2 * D
    torch.testing.assert_close(outputs.logits, model(normalise(pictures())))
    parts = [features_of(model, f"{name}.1", normalise(pictures())) for name in ("head", "head_dist")]
    torch.testing.assert_close(outputs.features, torch.cat(parts, 1))
    named = adapt(model, pictures(2), MEAN, STD, head=("head.1", "head_dist.1"))
    torch.testing.assert_close(named.outputs(pictures()).features, outputs.features)


def test_where_there_are_several_candidates_one_is_named() -> None:
    model = seeded(lambda: Distilled(False, lambda a, b: (a, b)))
    with pytest.raises(ValueError, match=r"one that returns 'head\.1', 'head_dist\.1'; say which .* head='head\.1'"):
        adapt(model, pictures(2), MEAN, STD)
    for number, name in enumerate(("head.1", "head_dist.1")):
        classifier = adapt(model, pictures(2), MEAN, STD, head=name)
        torch.testing.assert_close(classifier(pictures()), model(normalise(pictures()))[number])


def test_a_named_sequence_has_its_features_before_all_of_it() -> None:
    model = seeded(lambda: Net(nn.Sequential(nn.BatchNorm1d(D), nn.Linear(D, K))))
    model.get_submodule("fc.0").running_mean.normal_()  # type: ignore[operator]
    outer, inner = (adapt(model, pictures(2), MEAN, STD, head=name).outputs(pictures()) for name in ("fc", "fc.1"))
    torch.testing.assert_close(outer.features, features_of(model, "fc", normalise(pictures())))
    torch.testing.assert_close(inner.features, features_of(model, "fc.1", normalise(pictures())))
    torch.testing.assert_close(outer.logits, inner.logits)
    assert not torch.allclose(outer.features, inner.features)


def test_a_norm_of_the_logits_belongs_to_the_head() -> None:
    """Its own output is the model's, but features are what the linear layer before it takes."""
    model = seeded(
        lambda: nn.Sequential(
            Body(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Sequential(nn.Linear(D, K), nn.BatchNorm1d(K))
        )
    )
    outputs = adapt(model, pictures(2), MEAN, STD).outputs(pictures())
    assert outputs.D == D
    torch.testing.assert_close(outputs.logits, model(normalise(pictures())))


class Cosine(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 10 * nn.functional.normalize(input) @ nn.functional.normalize(self.weight).T


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            lambda: nn.Sequential(Net(nn.Linear(D, K)), nn.Softmax(1)),
            r"probabilities after a softmax .*'0\.fc' \(Linear\)",
        ),
        (lambda: nn.Sequential(Net(nn.Linear(D, K)), nn.LogSoftmax(1)), "log-probabilities after a softmax"),
        (lambda: Net(Cosine(D, K)), r"not the linear output of any layer \(layers with 5 outputs: 'fc' \(Cosine\)\)"),
        (lambda: Net(nn.Linear(D, K), lambda logits, features: logits.tanh()), "not the linear output of any layer"),
        (lambda: Net(nn.Linear(D, 1)), "two classes or more but got one with a single logit"),
        (lambda: Net(nn.Linear(D, K), lambda logits, features: "cat"), "returns logits but got a str without a tensor"),
        (lambda: Body(), r"returns logits of shape \(4, K\) but got shape \(4, 12, 4, 4\)"),
        (lambda: torch.jit.trace(Net(nn.Linear(D, K)), torch.rand(1, 3, 16, 16)), "TorchScript"),
        (lambda: str, "an nn.Module"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_candidates(model: Callable[[], Any], problem: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = model()
    with pytest.raises(ValueError, match=problem):
        adapt(made.eval() if isinstance(made, nn.Module) else made, pictures(2))


def test_names_that_are_wrong_are_refused() -> None:
    model = seeded(lambda: Net(nn.Linear(D, K)))
    with pytest.raises(ValueError, match=r"`head` to be a layer of the model but got 'classifier'; .* fc"):
        adapt(model, pictures(2), head="classifier")
    with pytest.raises(
        ValueError, match=r"but got 'body\.layers\.0', whose output the model's is not; .*'fc' \(Linear\)"
    ):
        adapt(model, pictures(2), head="body.layers.0")
    for names in (("a", "b"), ("a", "b", "c", "d", "a")):
        with pytest.raises(ValueError, match=r"`names` to be 5 different ones but got \d names, \d of them different"):
            adapt(model, pictures(2), names=names)
    assert adapt(model, pictures(2), names="abcde").names == ("a", "b", "c", "d", "e")


def test_an_example_that_the_model_does_not_take_is_an_error_in_one_line() -> None:
    model = seeded(lambda: Net(nn.Linear(D, K)))
    with pytest.raises(
        ValueError, match=r"`example` to be images that the model takes but got ones .*RuntimeError"
    ) as got:
        adapt(model, torch.rand(2, 1, 16, 16))
    assert "\n" not in str(got.value)


def test_an_adapted_model_keeps_its_preprocessing_and_exports() -> None:
    model = seeded(lambda: Net(nn.Linear(D, K)))
    rule = Preprocessing((16, 16), 18, 3)
    classifier = adapt(model, torch.rand(2, 3, 40, 50), MEAN, STD, preprocessing=rule)
    images = torch.rand(3, 3, 40, 50)
    torch.testing.assert_close(classifier(images), classifier(rule.apply(images)))
    program = torch.export.export(classifier, (images,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(program.module()(images[:2]), classifier(images[:2]))


def test_compiled_and_parallel_wrappers_are_taken_off() -> None:
    model = seeded(lambda: Net(nn.Linear(D, K)))
    for wrapped in (torch.compile(model, backend="eager"), nn.DataParallel(model).cpu()):
        torch.testing.assert_close(adapt(wrapped, pictures(2), MEAN, STD)(pictures()), model(normalise(pictures())))  # type: ignore[arg-type]


def test_the_public_resnet20_is_adapted_as_it_is() -> None:
    """A real network with its real weights, written here as its publisher has it: D = 64 features, and its accuracy."""
    path = SHARED / "data" / "resnet20_cifar10.npz"
    if not path.exists():
        pytest.skip(f"no {path}: set SHIFTPRISM_SHARED to the folder that has data/resnet20_cifar10.npz")
    model = ResNet20()
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    model.load_state_dict({name: arrays.get(name, tensor) for name, tensor in model.state_dict().items()})
    images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    outputs = adapt(model, images[:2], mean, std).outputs(images)
    assert (outputs.D, outputs.K) == (64, 10)
    weight, bias = arrays["linear.weight"], arrays["linear.bias"]
    torch.testing.assert_close(outputs.logits, outputs.features @ weight.T + bias, rtol=1e-4, atol=1e-4)
    ours = BACKBONES["resnet20"]()  # another implementation of the same network
    ours.load_state_dict({name: arrays.get(name, tensor) for name, tensor in ours.state_dict().items()})
    normalised = (images / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(outputs.features, ours.eval()(normalised), rtol=1e-4, atol=1e-4)


class ResNet20(nn.Module):
    """The CIFAR ResNet-20 with a linear layer, under the names of the public weights."""

    def __init__(self) -> None:
        super().__init__()
        for name, module in BACKBONES["resnet20"]().named_children():
            self.add_module(name, module)
        self.linear = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        maps = torch.relu(self.get_submodule("bn1")(self.get_submodule("conv1")(images)))
        for number in (1, 2, 3):
            maps = self.get_submodule(f"layer{number}")(maps)
        logits: Tensor = self.linear(nn.functional.avg_pool2d(maps, 8).flatten(1))
        return logits
