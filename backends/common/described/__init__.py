"""Described devices: kernels and launches for a device that is not installed, derived from its driver's properties."""
