"""Headers that kernels of several rooms include."""
