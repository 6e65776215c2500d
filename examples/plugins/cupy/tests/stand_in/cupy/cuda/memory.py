"""Stand-in for `cupy.cuda.memory`: its error only."""


class OutOfMemoryError(MemoryError):
    """CuPy could not allocate a temporary."""
