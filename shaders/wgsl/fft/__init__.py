"""Kernels of discrete Fourier transforms."""
