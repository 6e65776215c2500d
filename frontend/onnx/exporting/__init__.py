"""Ops of captured graphs as nodes of ONNX, one file per family."""

from polyhal.onnx.exporting import elementwise, layers, movement, reductions, regions  # noqa: F401
