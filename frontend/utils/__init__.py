"""PyTorch's places for datasets, loaders and checkpointing: `polyhal.data` and `polyhal.checkpoint`."""

from polyhal.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
