"""Stand-in for CUDA's driver: its error only."""


class CUDADriverError(RuntimeError):
    """Error of a call."""
