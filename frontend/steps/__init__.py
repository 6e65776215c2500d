"""Captured steps: what a call is taken apart into, what a run gives back, and gradients that flow on from it."""
