"""PyTorch's place for gradient checkpointing: `polyhal.utils.checkpoint.checkpoint` is `polyhal.checkpoint`."""

from polyhal.autograd.checkpoint import checkpoint

__all__ = ["checkpoint"]
