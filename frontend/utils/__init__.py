"""PyTorch's places for datasets, loaders and checkpointing, and Polyhal's own: files, metrics, curves and progress."""

from polyhal.utils import checkpoint, data, files

__all__ = ["checkpoint", "data", "files"]
