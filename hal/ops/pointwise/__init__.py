"""Elementwise ops: arithmetic, functions, comparisons, activations, casts, and fused groups of them."""
