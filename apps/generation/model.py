"""The interface of models that generate text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from polyhal import Device, Tensor, no_grad
from polyhal.nn import KVCache


class GeneratingModel(Protocol):
    """Interface of language models for generation."""

    training: bool

    @property
    def context_length(self) -> int:
        """Maximum number of tokens in the context."""

    @property
    def device(self) -> Device:
        """Device of the weights."""

    def __call__(self, ids: Tensor, cache: KVCache | None = None, last_only: bool | Tensor = False) -> Any:
        """Return logits (B, T, V) of tokens (B, T); with a cache, `ids` continue it.

        With `last_only` they are (B, 1, V), of the last tokens, or of the places (B,) in a tensor of int32.
        """

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
