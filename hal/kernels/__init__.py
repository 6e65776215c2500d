"""Kernels as files: the library, overrides, tuning, prebuilding, quarantine, and the log of kernel calls."""
