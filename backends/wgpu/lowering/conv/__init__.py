"""Convolution and pooling in WGSL; kernels in shaders/wgsl/conv."""
