"""Lowering to CUDA: reduction; kernels in kernels/reduction."""
