"""Random ops, from a counter-based generator."""
