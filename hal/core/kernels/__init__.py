"""Kernels as files: the library, overrides, tuning, prebuilding, and the log of kernel calls."""
