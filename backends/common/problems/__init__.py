"""Ops in the form that kernels take, in any shader language: merged axes, strides, and which operands are supported."""
