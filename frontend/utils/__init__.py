"""PyTorch's place for datasets and loaders: `polyhal.utils.data` is `polyhal.data`."""

from polyhal.utils import data

__all__ = ["data"]
