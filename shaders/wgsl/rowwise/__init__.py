"""Kernels of softmax, norms and losses."""
