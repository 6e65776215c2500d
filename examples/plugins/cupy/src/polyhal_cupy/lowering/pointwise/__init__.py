"""Lowering to CUDA: pointwise; kernels in kernels/pointwise."""
