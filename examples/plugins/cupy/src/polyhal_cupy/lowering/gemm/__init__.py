"""Lowering to CUDA: gemm; kernels in kernels/gemm."""
