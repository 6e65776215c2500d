"""Libraries from PyPI, unchanged, on the device "polyhal": small models with random parameters against the CPU."""
