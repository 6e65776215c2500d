"""Ops on weights that stay in blocks of bytes, in the formats of `polyhal.hal.quantization`."""
