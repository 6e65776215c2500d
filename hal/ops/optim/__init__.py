"""Optimizer steps and gradient scaling, in place over many tensors."""
