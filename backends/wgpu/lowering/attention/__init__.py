"""Attention in WGSL; kernels in shaders/wgsl/attention."""
