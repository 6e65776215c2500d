"""Quantised weights in WGSL; kernels in shaders/wgsl/quantized."""
