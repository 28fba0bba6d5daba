"""Classifiers: normalisation inside, any trained model adapted, one pass over the data, folders that round-trip."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shiftprism import Classifier, adapt, predict
from shiftprism._files import fingerprint, write_json
from shiftprism.backbones import BACKBONES
from shiftprism.classifier import evaluation_mode
from shiftprism.datasets import Dataset
from shiftprism.heads import DUQ, HEADS, Geometric, Linear

NAMES = ("zero", "one", "two")


def build(head: str = "alpha-beta", seed: int = 0) -> Classifier:
    return Classifier.build("digits", head, NAMES, channels=1, mean=[0.3], std=[0.4], seed=seed).eval()


def pictures(count: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)


class Net(nn.Module):
    """A user's own network: two linear layers, of which the last is the head."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.fc = head

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(images))
        return logits


def test_bytes_and_floats_say_the_same() -> None:
    classifier = build()
    as_floats = pictures().float() / 255
    torch.testing.assert_close(classifier(pictures()), classifier(as_floats))
    torch.testing.assert_close(classifier.normalise(as_floats), (as_floats - 0.3) / 0.4)
    assert torch.equal(classifier(pictures()), classifier.outputs(pictures()).logits)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_a_folder_gives_the_model_back(tmp_path: Path, head: str) -> None:
    classifier = build(head)
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert torch.equal(loaded(pictures()), classifier(pictures()))
    assert loaded.names == NAMES
    assert loaded.fingerprint() == classifier.fingerprint()
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == ["model.json", "weights.safetensors"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_is_loaded_in_the_precision_it_was_saved_in(dtype: torch.dtype, tmp_path: Path) -> None:
    for head in ("alpha-beta", "sngp"):
        classifier = build(head).to(dtype)
        classifier.save(tmp_path / head)
        loaded = Classifier.load(tmp_path / head)
        assert loaded.fingerprint() == classifier.fingerprint()
        assert loaded.mean.dtype == dtype
        assert torch.equal(loaded(pictures()), classifier(pictures()))
    adapted = adapt(Net(nn.Linear(16, 3)).to(dtype), pictures(2), [0.5], [0.5])
    adapted.save(tmp_path)
    fresh = adapt(Net(nn.Linear(16, 3)), pictures(2))
    assert torch.equal(Classifier.load(tmp_path, fresh.backbone, fresh.head)(pictures()), adapted(pictures()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_bytes_and_floats_of_an_image_are_the_same_to_a_model_of_any_precision(dtype: torch.dtype) -> None:
    """Fails if bytes are divided by 255 in half precision: ranks are taken of bytes, files are scored as floats."""
    classifier = Classifier.build("digits", "vanilla", NAMES, 1, mean=(0.31,), std=(0.27,)).to(dtype)
    images = pictures()
    assert images.dtype == torch.uint8
    assert torch.equal(classifier.normalise(images), classifier.normalise(images.float() / 255))


def test_compiling_changes_neither_names_nor_style(tmp_path: Path) -> None:
    """Traced by torch's compiler and run as it is; the layers that style reads must be seen in the traced network."""
    classifier = build("alpha-beta").eval()
    with torch.no_grad():
        before, fingerprint, names = (
            classifier.outputs(pictures()),
            classifier.fingerprint(),
            set(classifier.state_dict()),
        )
        frames = torch._dynamo.utils.counters["frames"]["ok"]
        classifier.compile(backend="eager")
        after = classifier.outputs(pictures())
    assert torch._dynamo.utils.counters["frames"]["ok"] > frames, "it was compiled"
    for left, right in zip(before, after, strict=True):
        torch.testing.assert_close(right, left)
    assert classifier.style_layers
    assert classifier.fingerprint() == fingerprint
    assert set(classifier.state_dict()) == names
    classifier.save(tmp_path)
    torch.testing.assert_close(Classifier.load(tmp_path).outputs(pictures()).style, before.style)


def test_a_model_of_mixed_precision_is_loaded_as_it_was(tmp_path: Path) -> None:
    classifier = build("alpha-beta")
    classifier.head.double()
    classifier.save(tmp_path)
    assert Classifier.load(tmp_path).fingerprint() == classifier.fingerprint()


def test_an_adapted_model_is_loaded_into_its_code(tmp_path: Path) -> None:
    adapted = adapt(Net(nn.Linear(16, 3)), pictures(2), [0.5], [0.5])
    adapted.save(tmp_path)
    with pytest.raises(
        ValueError, match=r"Expected `model` to be given but got nothing for .*, which was adapted from"
    ):
        Classifier.load(tmp_path)
    fresh = adapt(Net(nn.Linear(16, 3)), pictures(2))
    loaded = Classifier.load(tmp_path, fresh.backbone, fresh.head)
    assert torch.equal(loaded(pictures()), adapted(pictures()))


def test_broken_folders_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected `folder` to be a saved model but got .* without model\.json"):
        Classifier.load(tmp_path)
    write_json(tmp_path / "score" / "model.json", {"format": "shiftprism-score-2"})
    with pytest.raises(ValueError, match=r"to be a model of format shiftprism-model-1 .* of format shiftprism-score-2"):
        Classifier.load(tmp_path / "score")
    build("alpha-beta").save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    about["recipe"]["head"] = "vanilla"
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"head\.alpha\.bias is unknown; head\.alpha\.weight is unknown"):
        Classifier.load(tmp_path)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"`path` to be a whole safetensors file but got .*weights\.safetensors"):
        Classifier.load(tmp_path)
    weights.unlink()
    with pytest.raises(OSError, match=r"weights\.safetensors"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_linear_model_without_a_recipe_is_loaded_by_the_name_of_its_backbone(
    tmp_path: Path, bias: bool, channels: int
) -> None:
    classifier = build_from_code(bias, channels)
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path, "digits")
    assert loaded.fingerprint() == classifier.fingerprint()
    assert (loaded.names, loaded.recipe) == (("0", "1", "2"), None)
    images = pictures().expand(-1, channels, -1, -1)
    assert torch.equal(loaded(images), classifier(images))


def build_from_code(bias: bool, channels: int) -> Classifier:
    parts = BACKBONES["digits"](channels=channels), Linear(64, 3, bias=bias)
    return Classifier(*parts, mean=[0.3] * channels, std=[0.4] * channels).eval()


def test_a_backbone_that_does_not_fit_the_weights_is_refused(tmp_path: Path) -> None:
    build_from_code(bias=True, channels=1).save(tmp_path)
    with pytest.raises(ValueError, match=r"layers\.0\.weight is unknown"):
        Classifier.load(tmp_path, "resnet20")
    with pytest.raises(ValueError, match=r"Expected `backbone` to be one of digits, .* but got 'vgg'"):
        Classifier.load(tmp_path, "vgg")


def test_the_name_of_a_backbone_does_not_replace_a_recipe(tmp_path: Path) -> None:
    build().save(tmp_path)
    assert Classifier.load(tmp_path, "resnet20").recipe == build().recipe


def test_weights_of_another_run_are_refused(tmp_path: Path) -> None:
    build(seed=1).save(tmp_path)
    build(seed=2).save(tmp_path / "other")
    (tmp_path / "other" / "weights.safetensors").replace(tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="with other weights"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("head", [nn.Linear(16, 3), nn.Linear(16, 3, bias=False), Geometric(16, 3), Linear(16, 3)])
def test_adapt_finds_the_head(head: nn.Module) -> None:
    model = Net(head).eval()
    classifier = adapt(model, pictures(4), mean=[0.2], std=[0.7])
    expected = model((pictures().float() / 255 - 0.2) / 0.7)
    outputs = classifier.outputs(pictures())
    torch.testing.assert_close(outputs.logits, expected)
    assert (outputs.D, outputs.K) == (16, 3)
    assert model.fc is head  # the user's own model stays as it was


def test_adapt_takes_models_that_carry_their_logits() -> None:
    class Answer:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(nn.Linear(16, 3))

        def forward(self, images: Tensor) -> Answer:
            return Answer(self.net(images))

    model = Wrapped().eval()
    torch.testing.assert_close(adapt(model, pictures(2))(pictures()), model(pictures().float() / 255).logits)


def test_adapt_takes_a_lone_linear_layer() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    assert adapt(model, pictures(2)).outputs(pictures()).D == 64


def test_adapt_refuses_a_model_that_uses_its_last_layer_twice() -> None:
    """Its logits are those of the last layer, but the layer is needed before it too: without it they change."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = nn.Flatten(), nn.Linear(64, 64)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.fc(self.body(images)).relu())
            return logits

    with pytest.raises(ValueError, match="one that uses its last layer once but got one with other logits"):
        adapt(Twice(), pictures(2))


def test_adapt_refuses_a_model_that_ends_otherwise() -> None:
    with pytest.raises(ValueError, match="Expected `model` to be one that ends in its last linear layer"):
        adapt(nn.Sequential(Net(nn.Linear(16, 3)), nn.Softmax(1)), pictures(2))


def test_predict_is_one_ordered_pass() -> None:
    classifier = build()
    images, labels = pictures(23), torch.arange(23) % 3
    seen = []
    classifier.backbone.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    whole, none = predict(classifier, images, batch=5)
    assert sum(seen) == 23
    assert none is None
    torch.testing.assert_close(whole.logits, classifier(images))

    def loader() -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(images.split(4), labels.split(4), strict=True)

    for given in (loader(), Dataset(images, labels, NAMES)):
        outputs, found = predict(classifier, given)
        torch.testing.assert_close(outputs.logits, whole.logits)
        assert found is not None
        assert torch.equal(found, labels)


def test_predict_leaves_the_mode_as_it_was() -> None:
    classifier = build().train()
    before = classifier.fingerprint()
    predict(classifier, pictures())
    assert classifier.training
    assert classifier.fingerprint() == before  # batch statistics did not move


def test_the_mode_returns_after_an_error_too() -> None:
    classifier = build().train()

    def fail() -> None:
        with evaluation_mode(classifier):
            assert not classifier.training
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert classifier.training


def test_a_cache_is_used_for_the_same_model_images_and_style_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    first, second = build(seed=1), build(seed=2)
    for classifier in (first, second):
        classifier.backbone.register_forward_hook(lambda module, inputs, output: calls.append(1))
    path = tmp_path / "cache.safetensors"
    made, _ = predict(first, pictures(), cache=path)
    read, _ = predict(first, pictures(), cache=path)
    assert len(calls) == 1
    assert all(torch.equal(a, b) for a, b in zip(made, read, strict=True))
    predict(second, pictures(), cache=path)
    predict(second, pictures(seed=1), cache=path)
    assert len(calls) == 3
    path.write_bytes(b"cut off")
    predict(second, pictures(seed=1), cache=path)
    assert len(calls) == 4
    monkeypatch.setattr("shiftprism.classifier._predict.VERSION", "style-0")
    predict(second, pictures(seed=1), cache=path)
    assert len(calls) == 5


def test_a_cache_belongs_to_the_settings_of_the_head_too(tmp_path: Path) -> None:
    classifier = build("duq")
    predict(classifier, pictures(), cache=tmp_path / "cache")
    assert isinstance(classifier.head, DUQ)
    classifier.head.sigma = 0.2
    again, _ = predict(classifier, pictures(), cache=tmp_path / "cache")
    assert torch.equal(again.logits, predict(classifier, pictures())[0].logits)
    # a head without settings has the fingerprint that earlier versions gave it
    assert build("alpha-beta").fingerprint() == fingerprint(build("alpha-beta").state_dict())


def test_a_saved_head_keeps_its_settings(tmp_path: Path) -> None:
    classifier = build("duq")
    assert isinstance(classifier.head, DUQ)
    classifier.head.sigma, classifier.head.penalty_weight = 0.2, 1
    classifier.save(tmp_path)
    assert Classifier.load(tmp_path).fingerprint() == classifier.fingerprint()
    about = json.loads((tmp_path / "model.json").read_text())
    for settings in ({"sigma": 0.2}, {**about["settings"], "sigma": "wide"}, [0.2]):
        (tmp_path / "model.json").write_text(json.dumps(about | {"settings": settings}))
        with pytest.raises(ValueError, match=r"Expected `folder` to be a whole saved model but got .*settings"):
            Classifier.load(tmp_path)
    # as an earlier version wrote it: the head of that name, as it is built
    (tmp_path / "model.json").write_text(json.dumps({key: about[key] for key in about if key != "settings"}))
    assert getattr(Classifier.load(tmp_path).head, "sigma") == 0.1  # noqa: B009


def test_bad_images_are_refused() -> None:
    classifier = build()
    with pytest.raises(ValueError, match=r"Expected `images` to be in \[0, 1\] but got values from 0 to 255"):
        predict(classifier, torch.linspace(0, 255, 64).reshape(1, 1, 8, 8))
    with pytest.raises(ValueError, match=r"Expected `images` to be in \[0, 1\] but got values from nan to nan"):
        predict(classifier, torch.full((2, 1, 8, 8), float("nan")))
    with pytest.raises(ValueError, match="Expected `images` to be non-empty"):
        predict(classifier, pictures(0))
    with pytest.raises(ValueError, match=r"Expected `images` to be of shape \(N, C, H, W\)"):
        classifier(pictures()[0])
    with pytest.raises(ValueError, match="Expected `images` to be uint8, or floats"):
        classifier(pictures().long())
    with pytest.raises(ValueError, match="Expected `images` to be of 3 channels but got 1 channels"):
        Classifier.build("digits", "vanilla", NAMES, channels=3, mean=[0.5] * 3, std=[0.5] * 3)(pictures())
    with pytest.raises(ValueError, match="Expected `head` to be one of alpha, alpha-beta"):
        Classifier.build("digits", "gamma", NAMES)
    with pytest.raises(ValueError, match="Expected `std` to be 1 positive numbers"):
        Classifier(nn.Identity(), Linear(2, 2), [0.0], [0.0])
    with pytest.raises(ValueError, match="Expected `head` to be a shiftprism head but got Linear; use"):
        Classifier(nn.Identity(), nn.Linear(2, 2))  # type: ignore[arg-type]


def test_a_model_that_says_nan_is_caught() -> None:
    classifier = build()
    with torch.no_grad():
        classifier.head.get_parameter("weight").fill_(float("nan"))
    with pytest.raises(ValueError, match=r"Expected `outputs\.similarities` to be finite"):
        predict(classifier, pictures())


def test_a_model_with_one_logit_is_refused() -> None:
    with pytest.raises(ValueError, match="two classes or more but got one with a single logit"):
        adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), torch.rand(2, 1, 8, 8))


def test_a_trained_model_refuses_images_of_another_size(tmp_path: Path) -> None:
    classifier = build("vanilla")
    classifier.image_size = (8, 8)
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    channels = len(loaded.mean)
    with pytest.raises(ValueError, match="of 8 × 8 pixels but got 16 × 8"):
        predict(loaded, torch.rand(2, channels, 16, 8))
    loaded.image_size = None
    assert predict(loaded, torch.rand(2, channels, 16, 8))[0].N == 2
