"""Lowering to CUDA: attention; kernels in kernels/attention."""
