"""Kernels of convolution and pooling."""
