"""Kernels of recurrent layers: a launch runs a layer, or its gradient, over all time steps."""
