"""Ops in canonical form for the kernels of any shader language: merged axes, strides, and checks of operands."""
