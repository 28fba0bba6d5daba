"""Verdicts of an exported detector by onnxruntime, NumPy and Pillow alone: python onnx_score.py MODEL.onnx IMAGE..."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["shiftprism"])
takes, outputs = about["input"], [output.name for output in session.get_outputs()]
for path in sys.argv[2:]:
    image = Image.open(path).convert("RGB" if takes["channels"] == 3 else "L")
    if takes["height"] is not None:  # this file takes one size; otherwise it resizes by itself
        image = image.resize((takes["width"], takes["height"]))
    pixels = np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)[None]  # uint8, (1, C, H, W)
    found = {name: values[0] for name, values in zip(outputs, session.run(None, {"images": pixels}), strict=True)}
    name, sure = about["names"][found["label"]], found["probabilities"][found["label"]]
    print(f"{path}: {name} ({sure:.0%}), {about['kinds'][found['kind']]} (p = {found['p_combined']:.2g})")
