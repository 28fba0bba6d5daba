"""Export: what is refused before work begins, resize and crop inside, simpler graphs, other precisions."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from exported import Exported
from shiftprism import Classifier, Detector, runtime
from shiftprism.classifier import Preprocessing
from shiftprism.detector import divide
from shiftprism.export import OUTPUTS, export
from shiftprism.export._graphs import convert_preprocessing
from shiftprism.export._precision import find_backbone, halve
from shiftprism.export._simplify import simplify


def run(model: Any, **inputs: Any) -> list[np.ndarray[Any, Any]]:
    model.ir_version = 10
    found: list[np.ndarray[Any, Any]] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    return found


def build(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], constants: dict[str, Any]) -> Any:
    """A small model; the shapes of what is in between are inferred."""
    import onnx

    def infos(sides: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sides.items()]

    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "small", infos(inputs), infos(outputs), weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("rule", [Preprocessing((8, 8), 10, 3), Preprocessing((8, 6), (9, 9), 3)], ids=["side", "both"])
def test_resize_and_crop_inside_are_those_of_the_classifier(rule: Preprocessing) -> None:
    assert rule.size is not None
    assert rule.resize is not None
    model = convert_preprocessing(3, rule.size, rule.resize)
    model.ir_version = 10
    session = onnxruntime.InferenceSession(model.SerializeToString())
    generator = torch.Generator().manual_seed(0)
    # larger, smaller, long, of its size already, and sizes whose extra pixels are odd in number
    for height, width in ((40, 31), (23, 57), (5, 7), (8, 8), (8, 6), (10, 10), (11, 90), (64, 64)):
        images = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8, generator=generator)
        expected = rule.apply(images)
        expected = expected / 255 if expected.dtype == torch.uint8 else expected
        (found,) = session.run(None, {"images": images.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-5)


def test_a_simplified_graph_says_the_same() -> None:
    end = 2**63 - 1
    constants: dict[str, Any] = {
        **{f"start{n}": np.array([n]) for n in range(3)},
        **{f"axis{n}": np.array([n]) for n in range(5)},
        "end": np.array([end]),
        "less": np.array([-1]),
        "one": np.array([1]),
        "two": np.array([2]),
        "last": np.array(-1),
        "axes": np.array([1, 3]),
        "outer": np.array([1, 3]),
        "square": np.array(2, np.float32),
        "cube": np.array(3, np.float32),
        "deviations": np.linspace(0.2, 0.3, 9, dtype=np.float32).reshape(9, 1, 1),
        "eight": np.array(8, np.float32),
        "ranks": np.array(121, np.float32),
    }
    nodes = [
        helper.make_node("Slice", ["x", "start0", "end", "axis2", "two"], ["rows"]),
        helper.make_node("Slice", ["rows", "start0", "end", "axis3", "two"], ["half"]),
        helper.make_node("Slice", ["half", "start0", "end", "axis2", "two"], ["quarter"]),
        helper.make_node("Slice", ["x", "start1", "end", "axis2", "one"], ["lower"]),
        helper.make_node("Slice", ["lower", "start0", "less", "axis3", "one"], ["corner"]),
        helper.make_node("Shape", ["half"], ["sides"]),
        helper.make_node("Gather", ["sides", "last"], ["width"]),
        helper.make_node("Reshape", ["width", "one"], ["count"]),
        helper.make_node("TopK", ["half", "count"], ["sorted", "places"], axis=-1, largest=0),
        helper.make_node("Unsqueeze", ["x", "one"], ["wide"]),
        helper.make_node("ReduceMean", ["wide", "axes"], ["means"], keepdims=0),
        helper.make_node("ReduceMean", ["x", "outer"], ["profile"], keepdims=0),
        helper.make_node("Pow", ["x", "square"], ["squares"]),
        helper.make_node("Pow", ["x", "cube"], ["cubes"]),
        *(helper.make_node("Div", ["x", name], [f"by {name}"]) for name in ("deviations", "eight", "ranks")),
    ]
    outputs = {"quarter": None, "corner": None, "sorted": ["N", 9, 4, 3], "means": None, "profile": None}
    outputs |= dict.fromkeys(("squares", "cubes", "by deviations", "by eight", "by ranks"))
    x = np.random.default_rng(0).random((2, 9, 7, 6), np.float32)
    before = build(nodes, {"x": ["N", 9, 7, 6]}, outputs, constants)
    expected = run(before, x=x)
    after = simplify(before)
    for one, other in zip(run(after, x=x), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_array_equal(expected[0], x[:, :, ::4, ::2])
    direct = {node.output[0]: node.input[0] for node in after.graph.node if node.op_type == "Slice"}
    assert direct["quarter"] == direct["corner"] == direct["half"] == "x"
    counts = {each.name for each in after.graph.initializer}
    assert all(node.input[1] in counts for node in after.graph.node if node.op_type == "TopK")
    assert [node.output[0] for node in after.graph.node if node.op_type == "Pow"] == ["cubes"]
    # p-values are compared with the level: a quotient of ranks may not move by a bit
    assert [node.output[0] for node in after.graph.node if node.op_type == "Div"] == ["by ranks"]


@pytest.mark.parametrize(("inputs", "repeated"), [(2, True), (40, False)], ids=["cheap", "dear"])
def test_a_cheap_convolution_is_repeated_where_some_places_are_read(inputs: int, repeated: bool) -> None:
    generator = np.random.default_rng(0)
    weight = generator.normal(size=(9, inputs, 3, 3)).astype(np.float32)
    constants = {"w": weight, "start": np.array([0, 0]), "end": np.array([2**63 - 1] * 2), "axes": np.array([2, 3])}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["maps"], strides=[2, 1], pads=[1, 1, 1, 1]),
        helper.make_node("Slice", ["maps", "start", "end", "axes", "steps"], ["some"]),
        helper.make_node("Relu", ["maps"], ["all"]),
    ]
    shapes = {"x": ["N", inputs, 17, 14]}
    model = build(nodes, shapes, {"some": None, "all": None}, constants | {"steps": np.array([3, 4])})
    x = generator.random((2, inputs, 17, 14), np.float32)
    expected = run(model, x=x)
    found = simplify(model)
    for one, other in zip(run(found, x=x), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert [node.op_type for node in found.graph.node] == ["Conv", "Conv" if repeated else "MaxPool", "Relu"]


def test_places_of_normalised_maps_leave_the_normalisation_one_reader() -> None:
    generator = np.random.default_rng(0)
    names = ("scale", "bias", "mean", "variance")
    constants = {name: generator.random(9, np.float32) + 0.5 for name in names}
    constants |= {"start": np.array([0, 0]), "end": np.array([2**63 - 1] * 2), "axes": np.array([2, 3])}
    nodes = [
        helper.make_node("BatchNormalization", ["x", *names], ["maps"]),
        helper.make_node("Slice", ["maps", "start", "end", "axes", "steps"], ["some"]),
        helper.make_node("Relu", ["maps"], ["all"]),
    ]
    shapes = {"x": ["N", 9, 7, 5]}
    model = build(nodes, shapes, {"some": None, "all": None}, constants | {"steps": np.array([3, 2])})
    x = generator.normal(size=(2, 9, 7, 5)).astype(np.float32)
    expected = run(model, x=x)
    found = simplify(model)
    for one, other in zip(run(found, x=x), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert [node.output[0] for node in found.graph.node if "maps" in node.input] == ["all"]


@pytest.mark.parametrize(("size", "product"), [(6, True), (7, False)])
def test_small_maps_are_centred_by_a_product(size: int, product: bool) -> None:
    constants = {"places": np.array([-1, -2]), "rows": np.array([2])}
    nodes = [
        helper.make_node("ReduceMean", ["x", "places"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("ReduceMean", ["x", "rows"], ["row"], keepdims=1),  # over one axis: none of ours
        helper.make_node("Sub", ["x", "row"], ["other"]),
    ]
    model = build(nodes, {"x": ["N", 5, size, size]}, {"centred": None, "other": None}, constants)
    x = np.random.default_rng(0).normal(size=(3, 5, size, size)).astype(np.float32)
    x[0, 0] = 12.5  # of a flat map nothing is left
    expected = run(model, x=x)
    found = simplify(model)
    for one, other in zip(run(found, x=x), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert [node.op_type for node in found.graph.node].count("Sub") == 2 - product


def test_no_more_is_sorted_than_is_read() -> None:
    constants = {"all": np.array([9]), "first": np.array([0, 3]), "last": np.array([-1]), "one": np.array([1])}
    nodes = [
        helper.make_node("TopK", ["x", "all"], ["sorted", "places"], axis=-1, largest=0),
        helper.make_node("Gather", ["sorted", "first"], ["some"], axis=-1),
        helper.make_node("TopK", ["x", "all"], ["again", "places again"], axis=-1, largest=0),
        helper.make_node("Gather", ["again", "last"], ["largest"], axis=-1),
        helper.make_node("TopK", ["x", "all"], ["whole", "places of all"], axis=-1, largest=0),
        helper.make_node("Gather", ["whole", "one"], ["a row"], axis=0),  # along another axis: all of it is read
    ]
    model = build(nodes, {"x": ["N", 9]}, dict.fromkeys(("some", "largest", "a row")), constants)
    infer = {each.name for each in model.graph.value_info}
    assert "sorted" in infer, "the rewrite reads shapes"
    x = np.random.default_rng(0).random((4, 9), np.float32)
    expected = run(model, x=x)
    found = simplify(model)
    for one, other in zip(run(found, x=x), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(expected[0], np.sort(x)[:, [0, 3]])
    sizes = {each.name: each for each in found.graph.initializer}
    counts = [numpy_helper.to_array(sizes[node.input[1]]).item() for node in found.graph.node if node.op_type == "TopK"]
    assert counts == [4, 9, 9]
    assert "sorted" not in {each.name for each in found.graph.value_info}, "onnxruntime warns of wrong shapes"


def test_a_product_with_a_vector_has_one_column() -> None:
    vector = np.linspace(-1, 1, 7, dtype=np.float32)
    model = build([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["N", 7]}, {"y": None}, {"w": vector})
    x = np.random.default_rng(0).random((3, 7), np.float32)
    found = simplify(model)
    np.testing.assert_allclose(run(found, x=x)[0], x @ vector, rtol=1e-6)
    assert {each.name: list(each.dims) for each in found.graph.initializer}[found.graph.node[0].input[1]] == [7, 1]


def half_backbone() -> Any:
    """Pixels to style in float32, and to features by a product; a tap reads the product."""
    constants = {"weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "third": np.float32(1 / 3)}
    nodes = [
        helper.make_node("Mul", ["x", "third"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "weight"], ["maps"]),
        helper.make_node("Relu", ["maps"], ["outputs.features"]),
        helper.make_node("Mul", ["maps", "third"], ["tapped"]),
        helper.make_node("Exp", ["scaled"], ["pixels"]),
    ]
    outputs = {"outputs.features": ["N", 3], "tapped": ["N", 3], "pixels": ["N", 4]}
    return build(nodes, {"x": ["N", 4]}, outputs, constants)


def test_half_precision_is_the_backbone_alone() -> None:
    x = np.random.default_rng(0).random((5, 4), np.float32)
    single = half_backbone()
    assert [node.op_type for node in find_backbone(single)] == ["MatMul", "Relu"]
    features, tapped, pixels = run(half_backbone(), x=x)
    half = halve(single)
    found = run(half, x=x)
    np.testing.assert_array_equal(found[2], pixels)
    third = np.float32(1 / 3)
    product = (x * third).astype(np.float16).astype(np.float64) @ np.linspace(-1, 1, 12, dtype=np.float16).reshape(4, 3)
    np.testing.assert_allclose(found[0], np.maximum(product, 0), atol=2e-3)
    np.testing.assert_allclose(found[1], product * third, atol=1e-3)
    assert 0 < np.abs(found[0] - features).max() < 5e-3
    assert np.abs(found[1] - tapped).max() < 5e-3
    assert {each.name: each.data_type for each in half.graph.initializer} == {
        "third": TensorProto.FLOAT,
        "weight_half": TensorProto.FLOAT16,
    }


def test_the_file_returns_what_the_issue_names(exported_digits: Exported) -> None:
    session = runtime.load(exported_digits.path).session
    shapes = {each.name: each.shape for each in session.get_outputs()}
    assert tuple(shapes) == OUTPUTS
    assert {"label", "probabilities", "g", "h", "u", "style", "concept", "p_combined", "kind"} <= shapes.keys()
    assert shapes.pop("probabilities") == ["N", 10]
    assert set(map(tuple, shapes.values())) == {("N",)}
    (image,) = session.get_inputs()
    assert (image.name, image.type, image.shape) == ("images", "tensor(uint8)", ["N", 1, 8, 8])
    assert exported_digits.report.differences.unexplained == 0
    assert exported_digits.report.labels_changed == 0


def fit_digits(preprocessing: Preprocessing | None = None) -> tuple[Detector, Tensor]:
    from shiftprism.datasets import load

    data = load("digits", "train")
    classifier = Classifier.build("digits", "vanilla", data.names, 1, seed=1).eval()
    classifier.preprocessing = preprocessing or classifier.preprocessing
    return Detector.fit(classifier, data.images[:100], concept="energy", copies=4), data.images


def test_what_cannot_be_exported_says_so_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftprism.export._export.convert_network", None)  # a call of it would fail
    detector, images = fit_digits()
    cases: tuple[tuple[Any, dict[str, Any], str], ...] = (
        ("a.onnx", {}, r"Expected `size` to be given but got None for a model that takes any"),
        ("a.pt", {"size": (8, 8)}, r"Expected `path` to be a file that ends in \.onnx"),
        ("a.onnx", {"size": (8, 8), "precision": "int8"}, r"Expected `images` to be given for precision int8"),
        ("a.onnx", {"precision": "int4", "size": (8, 8)}, r"Expected `precision` to be one of float16, float32, int8"),
        ("a.onnx", {"images": images[:5], "size": (9, 9)}, r"Expected `images` to be of 1 × 9 × 9"),
    )
    for name, options, words in cases:
        with pytest.raises(ValueError, match=words):
            export(detector, tmp_path / name, **options)
    outputs = detector.classifier.outputs(images[:100]) if detector.classifier else None
    assert outputs is not None
    bare = Detector.from_outputs(outputs, concept="energy", false_alarm=0.1)
    with pytest.raises(ValueError, match="one that was made from Outputs, without a network"):
        export(bare, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ranges_of_int8_come_from_images_that_no_p_value_rests_on(
    exported_digits: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []

    def quantise(network: object, batches: "Iterable[NDArray[np.uint8]]") -> None:
        seen.extend(torch.from_numpy(batch) for batch in batches)
        raise InterruptedError

    monkeypatch.setattr("shiftprism.export._export.quantise", quantise)
    images = torch.arange(400, dtype=torch.int16).view(400, 1, 1, 1).expand(400, 1, 8, 8).clone()
    images[:, :, 0] //= 256  # the number of an image in its pixels
    images = (images % 256).to(torch.uint8)
    detector = exported_digits.detector
    with pytest.raises(InterruptedError):
        export(detector, tmp_path / "a.onnx", images=images, precision="int8")
    numbers = {256 * int(image[0, 0, 0]) + int(image[0, 7, 7]) for image in torch.cat(seen)}
    division = divide(400, None, detector.false_alarm, detector.confidence, 0)
    assert len(numbers) > 100
    assert numbers <= set(division.fit.tolist())
    assert not numbers & set(division.conformal.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_another_precision_has_ranks_of_its_own(exported_digits: Exported, tmp_path: Path, precision: str) -> None:
    from shiftprism.datasets import load

    data = load("digits", "train")
    order = torch.randperm(len(data.images), generator=torch.Generator().manual_seed(0))  # writers come in runs
    held_out, new = order[:400], order[400:800]
    before = exported_digits.detector
    path = tmp_path / "digits.onnx"
    report = export(before, path, images=data.images[held_out], labels=data.labels[held_out], precision=precision)
    exported = runtime.load(path)
    assert exported.about.precision == report.precision == precision
    assert exported.fingerprint not in (before.fingerprint(), report.detector.fingerprint())
    assert exported.reference.detector == exported.fingerprint
    assert "half precision" in exported.input.inside or "int8" in exported.input.inside
    assert report.labels_changed <= 20
    held = len(report.detector.held.style)
    assert exported.about.held_out == (held,)
    # conformal p-values of new clean images are uniform or larger, whatever the network
    p = exported(data.images[new].numpy()).p_combined
    assert (p <= 0.1).mean() < 0.1 + 3 * (0.1 * 0.9 * (1 / held + 1 / 400)) ** 0.5


@pytest.mark.slow
def test_a_detector_that_resizes_takes_photographs(tmp_path: Path) -> None:
    detector, images = fit_digits(Preprocessing((8, 8), 8, 1))
    path = tmp_path / "resizing.onnx"
    report = export(detector, path)
    assert report.input.shortest == 8
    assert report.differences.unexplained == 0
    exported = runtime.load(path)
    large = torch.nn.functional.interpolate(images[:20].float(), (31, 47), mode="bicubic").clamp(0, 255).to(torch.uint8)
    assert exported(large.numpy()).kind.tolist() == detector(large).kind.tolist()
    with pytest.raises(ValueError, match="less long and narrow"):
        exported(np.zeros((1, 1, 1, 2_000_000), np.uint8))
