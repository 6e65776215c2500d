"""Optimizer steps in WGSL; kernels in shaders/wgsl/optim."""
