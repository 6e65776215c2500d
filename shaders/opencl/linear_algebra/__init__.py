"""Kernels of dense linear algebra."""
