"""One ONNX file that carries its verdict: preprocessing, network, style, scores, ranks and level of a detector."""

from shiftprism.export._compare import Differences, compare
from shiftprism.export._convert import OPSET
from shiftprism.export._export import Report, export
from shiftprism.export._graphs import OUTPUTS
from shiftprism.export._precision import PRECISIONS

__all__ = ["OPSET", "OUTPUTS", "PRECISIONS", "Differences", "Report", "compare", "export"]
