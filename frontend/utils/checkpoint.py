"""PyTorch's place for gradient checkpointing: `polyhal.utils.checkpoint.checkpoint` is `polyhal.checkpoint`."""

from polyhal.tape.checkpoint import checkpoint

__all__ = ["checkpoint"]
