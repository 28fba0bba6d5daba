"""What an exported file computes, in two parts: images to the fields of Outputs, and these to a decision."""

from typing import Any

import torch
from torch import Tensor, nn

from shiftprism.classifier import Classifier
from shiftprism.detector import Decision
from shiftprism.export._convert import convert, join
from shiftprism.outputs import Outputs
from shiftprism.scores import g, h, u

OUTPUTS = (
    *("label", "probabilities", "g", "h", "u"),
    *("style", "concept", "p_covariate", "p_concept", "p_combined", "kind"),
)
"""What a file returns, in order."""
FIELDS = tuple(f"outputs.{name}" for name in Outputs._fields)
_EXAMPLES = 3
"""Images that the exporter runs; not 1, which it would take for a fixed number."""


class _Network(nn.Module):
    """Images to the fields of Outputs."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.classifier.outputs(images))


class _Verdict(nn.Module):
    """The fields of Outputs to what a file returns."""

    def __init__(self, decision: Decision) -> None:
        super().__init__()
        self.decision = decision

    def forward(self, *fields: Tensor) -> tuple[Tensor, ...]:
        outputs = Outputs(*fields)
        parts = self.decision(outputs)
        known = parts._asdict() | {"g": g(outputs), "h": h(outputs), "u": u(outputs)}
        return tuple(known[name] for name in OUTPUTS)


def convert_network(classifier: Classifier, example: Tensor) -> Any:
    """The ONNX model from images like `example`, (C, H, W), to the fields of Outputs."""
    images = example.expand(_EXAMPLES, -1, -1, -1).contiguous()
    return convert(_Network(classifier), (images,), ("images",), FIELDS)


def convert_decision(decision: Decision, outputs: Outputs) -> Any:
    """The ONNX model from the fields of Outputs, like those given, to what a file returns."""
    fields = tuple(field[:1].expand(_EXAMPLES, *field.shape[1:]).contiguous() for field in outputs)
    return convert(_Verdict(decision), fields, FIELDS, OUTPUTS)


def convert_preprocessing(channels: int, size: tuple[int, int], resize: int | tuple[int, int]) -> Any:
    """The ONNX model of `Preprocessing.apply`: uint8 images of any size to floats in [0, 1] of `size`.

    Two branches: images that have the size already are not resized or cropped, which would copy them twice.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from shiftprism.export._convert import OPSET

    def constant(name: str, values: Any, dtype: Any = np.int64) -> Any:
        return numpy_helper.from_array(np.asarray(values, dtype), name)

    def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
        return helper.make_node(kind, inputs.split(), [output], **attributes)

    def graph(name: str, nodes: list[Any], inputs: list[Any], output: str, constants: list[Any]) -> Any:
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", channels, *size])
        return helper.make_graph(nodes, name, inputs, [result], constants)

    top = constant("top", 255.0, np.float32)
    as_they_are = graph(
        "as_they_are",
        [node("Cast", "images", "values", to=TensorProto.FLOAT), node("Div", "values values_top", "unchanged")],
        [],
        "unchanged",
        [constant("values_top", 255.0, np.float32)],
    )
    shortest = isinstance(resize, int)
    # the shortest side has the length asked for; the other one is cut down to a whole number
    target = [
        node("ReduceMin", "own_sides", "least", keepdims=1),
        node("Mul", "rule own_sides", "product"),
        node("Div", "product least", "target"),
    ]
    resized_and_cropped = graph(
        "resized_and_cropped",
        [
            node("Cast", "images", "wide", to=TensorProto.FLOAT),
            node("Div", "wide top", "floats"),
            node("Shape", "images", "own_sides", start=2, end=4),
            *(target if shortest else [node("Identity", "rule", "target")]),
            node("Shape", "images", "batch", start=0, end=2),
            node("Concat", "batch target", "whole", axis=0),
            helper.make_node(
                "Resize",
                ["floats", "", "", "whole"],
                ["scaled"],
                mode="linear",
                antialias=1,
                exclude_outside=1,
                coordinate_transformation_mode="half_pixel",
            ),
            # half of what is too much, rounded to even as in Python
            node("Sub", "target own_size", "extra"),
            node("Cast", "extra", "extra_floats", to=TensorProto.FLOAT),
            node("Mul", "extra_floats half", "halves"),
            node("Round", "halves", "rounded"),
            node("Cast", "rounded", "starts", to=TensorProto.INT64),
            node("Add", "starts own_size", "ends"),
            node("Slice", "scaled starts ends axes", "cropped"),
        ],
        [],
        "cropped",
        [
            top,
            constant("rule", [resize, resize] if shortest else resize),
            constant("own_size", size),
            constant("half", 0.5, np.float32),
            constant("axes", [2, 3]),
        ],
    )
    nodes = [
        node("Shape", "images", "sides", start=2, end=4),
        node("Sub", "sides size", "missing"),
        node("Abs", "missing", "distance"),
        node("ReduceMax", "distance", "farthest", keepdims=0),
        node("Cast", "farthest", "differs", to=TensorProto.BOOL),
        node("If", "differs", "prepared", then_branch=resized_and_cropped, else_branch=as_they_are),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", channels, "H", "W"])
    whole = graph("preprocessing", nodes, [images], "prepared", [constant("size", size)])
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)])


def rename_input(model: Any, name: str) -> Any:
    """The same model, whose only input has another name."""
    (before,) = [each.name for each in model.graph.input]
    model.graph.input[0].name = name
    for each in model.graph.node:
        for place, value in enumerate(each.input):
            if value == before:
                each.input[place] = name
    return model


def join_preprocessing(classifier: Classifier, channels: int, network: Any) -> Any:
    """The network behind resize and crop, where the classifier has a rule; the network alone otherwise."""
    rule = classifier.preprocessing
    if rule.resize is None or rule.size is None:
        return network
    return join(convert_preprocessing(channels, rule.size, rule.resize), rename_input(network, "prepared"))


def example_image(channels: int, size: tuple[int, int], floats: bool) -> Tensor:
    """(C, H, W): what the network sees; the exporter needs its shape and type alone."""
    dtype = torch.float32 if floats else torch.uint8
    return torch.zeros(channels, *size, dtype=dtype)
