"""Replay PyTorch's own sample calls on its device "polyhal", and write the page of coverage."""
