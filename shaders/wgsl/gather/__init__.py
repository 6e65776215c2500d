"""Kernels that read and add by index."""
