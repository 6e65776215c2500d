"""Lowering to CUDA: gather; kernels in kernels/gather."""
