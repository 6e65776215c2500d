"""Lowering to CUDA: optim; kernels in kernels/optim."""
