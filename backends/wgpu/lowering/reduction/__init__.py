"""Reductions in WGSL; kernels in shaders/wgsl/reduction."""
