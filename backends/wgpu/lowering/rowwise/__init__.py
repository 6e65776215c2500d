"""Softmax, norms and losses in WGSL; kernels in shaders/wgsl/rowwise."""
