"""Templates that kernels of several rooms include."""
