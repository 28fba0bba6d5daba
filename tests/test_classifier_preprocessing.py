"""A model's own preprocessing: size, resize and crop rule and channels, in floats, kept with the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from shiftprism import Classifier, predict
from shiftprism._files import fingerprint
from shiftprism.classifier import Preprocessing

NAMES = ("zero", "one", "two")
RULE = Preprocessing(size=(8, 8), resize=10, channels=1)


def build(rule: Preprocessing | None = RULE, channels: int = 1) -> Classifier:
    mean, std = [0.3] * channels, [0.4] * channels
    classifier = Classifier.build("digits", "vanilla", NAMES, channels=channels, mean=mean, std=std).eval()
    classifier.preprocessing = rule or Preprocessing()
    return classifier


def pictures(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def resize_in_floats(image: Tensor, height: int, width: int) -> Tensor:
    """Pillow's antialiased bilinear resize of float channels, which it does not round: an outside witness."""
    planes = [Image.fromarray(plane.float().numpy() / 255) for plane in image]
    resized = [np.asarray(plane.resize((width, height), Image.Resampling.BILINEAR)) for plane in planes]
    return torch.from_numpy(np.stack(resized))


@pytest.mark.parametrize(
    ("shape", "resize", "resized", "top", "left"),
    [
        ((3, 50, 71), 20, (20, 28), 2, 6),  # 20 · 71 / 50 = 28.4, cut to 28; (28 − 16) / 2 = 6
        ((3, 71, 50), 20, (28, 20), 6, 2),
        ((3, 9, 11), 21, (21, 25), 2, 4),  # enlarged; (21 − 16) / 2 = 2.5 and (25 − 16) / 2 = 4.5 go to the even
        ((1, 50, 71), (16, 16), (16, 16), 0, 0),
        ((1, 40, 40), (18, 22), (18, 22), 1, 3),
        ((3, 1, 1), 20, (20, 20), 2, 2),
    ],
)
def test_resize_and_crop_are_pillows_in_floats(
    shape: tuple[int, ...], resize: Any, resized: tuple[int, int], top: int, left: int
) -> None:
    images = pictures(2, *shape)
    found = Preprocessing((16, 16), resize).apply(images)
    expected = torch.stack([resize_in_floats(image, *resized) for image in images])[
        :, :, top : top + 16, left : left + 16
    ]
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    # not rounded: a rounded picture would be off by up to half a grey level
    if shape != (3, 1, 1):
        assert (found * 255 - (found * 255).round()).abs().max() > 0.4


def test_an_image_of_the_models_size_is_taken_as_it_is() -> None:
    images = pictures(3, 1, 8, 8)
    assert RULE.apply(images) is images
    assert torch.equal(build().prepare(images[0]), images[0].float() / 255)
    assert torch.equal(build()(images), build(None)(images))


def test_a_whole_crop_is_cut_to_the_pixel() -> None:
    images = pictures(1, 3, 6, 10)
    assert torch.equal(Preprocessing((4, 4), 6).apply(images), images[:, :, 1:5, 3:7].float() / 255)


def test_outputs_of_any_size_are_those_of_the_prepared_images() -> None:
    classifier, images = build(), pictures(4, 1, 30, 40)
    prepared = torch.stack([classifier.prepare(image) for image in images])
    assert prepared.shape == (4, 1, 8, 8)
    whole = classifier.outputs(images)
    for field, other in zip(whole, classifier.outputs(prepared), strict=True):
        torch.testing.assert_close(field, other)
    torch.testing.assert_close(whole.style, build(None).outputs(prepared).style)  # style is that after resize and crop
    torch.testing.assert_close(classifier(images), whole.logits)
    torch.testing.assert_close(classifier.features(images), whole.features)
    torch.testing.assert_close(predict(classifier, images)[0].logits, whole.logits)
    torch.testing.assert_close(classifier.normalise(images), (prepared - 0.3) / 0.4)
    assert torch.equal(classifier.prepare(classifier.prepare(images[0])), classifier.prepare(images[0]))


def test_images_of_different_sizes_fit_into_one_batch() -> None:
    classifier = build()
    images = [pictures(1, 8, 8), pictures(1, 30, 9), pictures(1, 1, 1), pictures(3, 12, 13)]
    assert classifier(torch.stack([classifier.prepare(image) for image in images])).shape == (4, 3)


def test_channels_follow_the_model() -> None:
    grey, colour = build(), build(Preprocessing((8, 8), 10, 3), channels=3)
    image = pictures(3, 8, 8)
    luma = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
    torch.testing.assert_close(grey.prepare(image), luma[None].float() / 255)
    assert torch.equal(colour.prepare(image[:1]), image[:1].float().expand(3, 8, 8) / 255)
    assert torch.equal(colour.prepare(image), image.float() / 255)
    for classifier, wrong in ((grey, pictures(2, 8, 8)), (colour, pictures(4, 8, 8))):
        with pytest.raises(ValueError, match=r"`images` to be of \d channels but got \d channels"):
            classifier.prepare(wrong)
    with pytest.raises(ValueError, match="`images` to be of 1 channels but got 3 channels"):
        grey(pictures(1, 3, 8, 8))  # a batch is never changed without a word


def test_without_a_rule_another_size_is_refused() -> None:
    classifier = build(Preprocessing(size=(8, 8)))
    with pytest.raises(ValueError, match=r"of 8 × 8 pixels but got 9 × 8; .*give the model a resize rule"):
        classifier(pictures(2, 1, 9, 8))
    with pytest.raises(ValueError, match="of 8 × 8 pixels but got 9 × 8"):
        classifier.prepare(pictures(1, 9, 8))
    assert build(None).prepare(pictures(1, 9, 8)).shape == (1, 9, 8)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`image` to be of shape \(C, H, W\) but got shape \(1, 1, 8, 8\)"):
        build().prepare(pictures(1, 1, 8, 8))
    with pytest.raises(ValueError, match="`images` to be uint8, or floats"):
        build().prepare(pictures(1, 8, 8).long())
    with pytest.raises(ValueError, match="less long and narrow but got 1 × 700000 pixels, which becomes 10 × 7000000"):
        build().prepare(torch.zeros(1, 1, 700_000, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ({"resize": 8}, "give the size that is cropped"),
        ({"size": (8, 8), "resize": 7}, "resize to at least the size"),
        ({"size": (8, 8), "resize": (9, 7)}, "resize to at least the size"),
        ({"size": 8}, "size is height and width"),
        ({"size": (8, 0)}, "size is height and width"),
        ({"size": (8, 8), "resize": True}, "resize is the length"),
        ({"size": (8, 8), "resize": 8.5}, "resize is the length"),
        ({"channels": 0}, "channels is 1 for grey"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(rule: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"`preprocessing` to be a rule that can be followed .*; {fault}"):
        Preprocessing(**rule)
    build(None).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    about["preprocessing"] |= rule
    (tmp_path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=rf"a whole saved model but got .*model\.json, where preprocessing .*{fault}"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize(
    "rule", [{"size": None}, {"size": None, "resize": None, "channels": 3, "crop": 1}, [8, 8], None]
)
def test_a_file_with_another_rule_is_refused(rule: Any, tmp_path: Path) -> None:
    build(None).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"preprocessing": rule}))
    with pytest.raises(ValueError, match="preprocessing does not consist of size, resize and channels"):
        Classifier.load(tmp_path)


@pytest.mark.parametrize("rule", [RULE, Preprocessing((8, 8), (9, 10), 1), Preprocessing((8, 8)), Preprocessing()])
def test_the_rule_is_saved_with_the_model(rule: Preprocessing, tmp_path: Path) -> None:
    classifier = build(rule)
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    assert loaded.preprocessing == rule
    assert loaded.fingerprint() == classifier.fingerprint()


def test_a_file_of_an_earlier_version_has_an_image_size_alone(tmp_path: Path) -> None:
    build(None).save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    del about["preprocessing"]
    (tmp_path / "model.json").write_text(json.dumps(about | {"image_size": [8, 8]}))
    assert Classifier.load(tmp_path).preprocessing == Preprocessing((8, 8))


def test_a_resize_rule_is_part_of_the_fingerprint() -> None:
    """What changes no output (a size that is only checked) changes no fingerprint: earlier files keep theirs."""
    plain, sized = build(None), build(Preprocessing((8, 8)))
    assert plain.fingerprint() == sized.fingerprint() == fingerprint(plain.state_dict())
    rules = (RULE, Preprocessing((8, 8), 11, 1), Preprocessing((8, 8), (10, 10), 1), Preprocessing((8, 9), 10, 1))
    assert len({build(rule).fingerprint() for rule in (None, *rules)}) == 5


def test_a_cache_belongs_to_the_rule(tmp_path: Path) -> None:
    images = pictures(3, 1, 20, 20)
    for resize in (10, 12):
        classifier = build(Preprocessing((8, 8), resize, 1))
        cached, _ = predict(classifier, images, cache=tmp_path / "cache")
        torch.testing.assert_close(cached.logits, classifier(images))


def test_halves_are_resized_in_float32() -> None:
    found = RULE.apply(pictures(2, 1, 30, 40).half() / 255)
    assert found.dtype == torch.float32
    assert build().half()(pictures(2, 1, 30, 40)).isfinite().all()
    assert RULE.apply(pictures(2, 1, 30, 40).double() / 255).dtype == torch.float64


def test_resize_and_crop_export_for_a_fixed_input_size() -> None:
    classifier, images = build(), pictures(3, 1, 30, 40)
    program = torch.export.export(classifier, (images,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(program.module()(pictures(5, 1, 30, 40)), classifier(pictures(5, 1, 30, 40)))
