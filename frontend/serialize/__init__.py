"""Saving and loading models, optimizers and training state: safetensors and JSON, never pickle.

A checkpoint is one file, or a folder with `state.json` and a tensor file. Saving is atomic: new data is written next to the
old, flushed to disk and renamed.
"""

from polyhal.serialize.checkpoint import eager, load_checkpoint, save_checkpoint
from polyhal.serialize.files import load, save
from polyhal.serialize.tree import LazyState

__all__ = ["LazyState", "eager", "load", "load_checkpoint", "save", "save_checkpoint"]
