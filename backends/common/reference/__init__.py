"""The reference computation in NumPy, on arrays. Backends that keep device memory in arrays share it and agree bit for bit."""
