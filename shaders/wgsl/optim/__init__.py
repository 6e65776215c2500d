"""Kernels of optimizer steps."""
