"""Kernels of quantised weights."""
