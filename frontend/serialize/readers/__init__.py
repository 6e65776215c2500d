"""Readers of other formats: PyTorch's weights, NumPy's archives, sharded safetensors.

Nothing in such a file is executed. Each reader returns the JSON-like tree of `serialize.tree` and a source of its tensors, so
that sharing, lazy access and devices work as for Polyhal's own files.
"""
