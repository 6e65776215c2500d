"""Templates that kernels of several folders include."""
