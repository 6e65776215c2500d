"""Formats of quantised weights: the meaning of their bytes, and conversion on the host."""
