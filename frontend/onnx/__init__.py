"""ONNX models as modules: `polyhal.onnx.load("model.onnx")`. Needs the package onnx (`pip install "polyhal[onnx]"`)."""

from __future__ import annotations

from polyhal.onnx.export import export
from polyhal.onnx.module import OnnxModule, load
from polyhal.onnx.registration import operator

__all__ = ["OnnxModule", "export", "load", "operator"]
