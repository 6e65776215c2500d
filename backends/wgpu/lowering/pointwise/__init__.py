"""Elementwise ops, copies and random numbers in WGSL; kernels in shaders/wgsl/pointwise."""
