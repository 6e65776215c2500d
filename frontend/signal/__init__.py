"""Signal processing under the names of torch.signal."""

from polyhal.signal import windows

__all__ = ["windows"]
