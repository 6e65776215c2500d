"""Kernels of convolution, pooling and resampling."""
