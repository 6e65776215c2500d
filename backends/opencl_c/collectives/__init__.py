"""Collectives by kernels that write to the memory of other devices, for backends whose drivers share memory between them."""
