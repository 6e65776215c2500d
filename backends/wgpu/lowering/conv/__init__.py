"""Convolution, pooling and resampling in WGSL; kernels in shaders/wgsl/conv."""
