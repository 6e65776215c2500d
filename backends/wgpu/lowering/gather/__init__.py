"""Gather and scatter in WGSL; kernels in shaders/wgsl/gather."""
