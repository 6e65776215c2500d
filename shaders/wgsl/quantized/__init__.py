"""Kernels that read quantised blocks."""
