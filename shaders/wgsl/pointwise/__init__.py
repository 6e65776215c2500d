"""Kernels of elementwise ops, copies and random numbers."""
