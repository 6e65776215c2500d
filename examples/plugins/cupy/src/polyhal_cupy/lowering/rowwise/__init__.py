"""Lowering to CUDA: rowwise; kernels in kernels/rowwise."""
