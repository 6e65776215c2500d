"""PyTorch's places for datasets, loaders and checkpointing, and `files`, which is Polyhal's own."""

from polyhal.utils import checkpoint, data, files

__all__ = ["checkpoint", "data", "files"]
