"""The reference computation in NumPy, on arrays. Backends that keep device memory in arrays share it, so their bits agree."""
