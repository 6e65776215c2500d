"""The interface of models that generate text, and the processing of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from polyhal import Device, Tensor, no_grad
from polyhal.nn import KVCache

CHUNK = 512
"""Tokens of a prompt per step, so that a long prompt does not hold up the sequences that are decoding."""


class GeneratingModel(Protocol):
    """Interface of language models for generation."""

    training: bool

    @property
    def context_length(self) -> int:
        """Maximum number of tokens in the context."""

    @property
    def device(self) -> Device:
        """Device of the weights."""

    def __call__(self, ids: Tensor, cache: KVCache | None = None, last_only: bool = False) -> Any:
        """Return logits (B, T, V) of tokens (B, T), or (B, 1, V) of the last ones; with a cache, `ids` continue it."""

    def make_cache(self, batch: int = 1) -> KVCache:
        """Make an empty cache for `context_length` tokens."""

    def train(self, mode: bool = True) -> Any:
        """Set training mode, or evaluation mode."""


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Set a model to evaluation mode and disable the tape, in the block."""
    training = model.training
    if training:
        model.train(False)
    try:
        with no_grad():
            yield
    finally:
        if training:
            model.train()


def extend_cache(
    model: GeneratingModel, cache: KVCache, index: int, ids: Sequence[int], filled: int, last_only: bool = True
) -> Tensor:
    """Add tokens to the cache of a sequence after its first `filled` ones, and return the model's logits.

    They are padded to few different lengths; keys and values of padding are overwritten later.
    """
    count = len(ids)
    padded = 1 << (count - 1).bit_length()
    if filled + padded > min(cache.capacity, model.context_length):
        padded = count
    row = np.zeros((1, padded), np.int32)
    row[0, :count] = ids
    logits: Tensor = model(Tensor(row, device=model.device), cache.sequence(index, filled), last_only=last_only)
    return logits
