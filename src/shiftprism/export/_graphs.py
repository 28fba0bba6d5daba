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

    An image that has the size already is resized to it, which changes nothing.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    def constant(name: str, values: Any, dtype: Any = np.int64) -> Any:
        return numpy_helper.from_array(np.asarray(values, dtype), name)

    def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
        return helper.make_node(kind, inputs.split(), [output], **attributes)

    shortest = isinstance(resize, int)
    initializers = [
        constant("size", size),
        constant("rule", [resize, resize] if shortest else resize),
        constant("top", 255.0, np.float32),
        constant("first", [0]),
        constant("second", [1]),
        constant("two", 2),
        constant("one", 1),
        constant("axes", [2, 3]),
        constant("places", [0]),
    ]
    nodes = [
        node("Cast", "images", "wide", to=TensorProto.FLOAT),
        node("Div", "wide top", "floats"),
        node("Shape", "images", "sides", start=2, end=4),
    ]
    if shortest:
        # the shortest side has the length asked for; the other one is cut down to a whole number
        nodes += [
            node("ReduceMin", "sides", "least", keepdims=1),
            node("Mul", "rule sides", "product"),
            node("Div", "product least", "target"),
        ]
    else:
        nodes.append(node("Identity", "rule", "target"))
    nodes += [
        node("Sub", "sides size", "missing"),
        node("Abs", "missing", "distance"),
        node("ReduceMax", "distance", "farthest", keepdims=0),
        node("Cast", "farthest", "differs", to=TensorProto.BOOL),
        node("Where", "differs target size", "resized"),
        node("Shape", "images", "batch", start=0, end=2),
        node("Concat", "batch resized", "whole", axis=0),
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
        node("Sub", "resized size", "extra"),
        node("Cast", "extra", "extra_floats", to=TensorProto.FLOAT),
        node("Mul", "extra_floats half", "halves"),
        node("Round", "halves", "rounded"),
        node("Cast", "rounded", "starts", to=TensorProto.INT64),
        node("Add", "starts size", "ends"),
        node("Slice", "scaled starts ends axes", "prepared"),
    ]
    initializers.append(constant("half", 0.5, np.float32))
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes,
        "preprocessing",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", channels, "H", "W"])],
        [helper.make_tensor_value_info("prepared", TensorProto.FLOAT, ["N", channels, *size])],
        [each for each in initializers if each.name in used],
    )
    from shiftprism.export._convert import OPSET

    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


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
