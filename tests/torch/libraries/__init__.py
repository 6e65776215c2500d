"""Unmodified libraries from PyPI on the device "polyhal": small models with random parameters, compared with the CPU."""
