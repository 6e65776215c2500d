"""Lowering to CUDA: conv; kernels in kernels/conv."""
