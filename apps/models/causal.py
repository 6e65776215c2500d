"""The interface of language models that predict the next token: loss, generation and the limit of the context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import KVCache, Module
from polyhal.nn import functional as F


class CausalModel(Module, ABC):
    """Token ids (B, T) to logits of the next token (B, T, vocab_size), with an optional cache of earlier tokens."""

    context_length: int
    """Maximum number of tokens in the context, for which caches are made. A smaller number may be set."""
    cache_dtype: DType | None = None
    """Dtype of the keys and values in caches: floats, or int8 with a scale for each row. None for the dtype of the weights."""

    @property
    @abstractmethod
    def device(self) -> Device:
        """Device of the weights."""

    @abstractmethod
    def make_cache(self, batch: int = 1) -> KVCache:
        """Make an empty cache for `context_length` tokens."""

    def loss(self, ids: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy of `targets` (B, T) given `ids` (B, T), in nats per token; -100 is ignored."""
        logits = self(ids, attention_mask=attention_mask)
        return F.cross_entropy(ph.reshape(logits, (-1, logits.shape[-1])), ph.reshape(targets, (-1,)))

    def generate(self, prompt_ids: Sequence[int], max_tokens: int, **options: Any) -> list[int]:
        """Generate tokens after a prompt; `options` are passed to `polyhal.models.generate`."""
        from polyhal.models.generation import generate

        return generate(self, prompt_ids, max_tokens, **options)

    def check_context(self, ids: Tensor, cache: KVCache | None) -> None:
        """Raise ShapeError unless `ids` are (B, T) and fit in the context after the tokens of `cache`."""
        name = type(self).__name__
        if ids.ndim != 2:
            raise ShapeError(message(name, f"token ids of shape {ids.shape}", expected="(batch, length)"))
        total = ids.shape[1] + (0 if cache is None else cache.length)
        if total > self.context_length:
            raise ShapeError(message(name, f"{total} tokens of context", expected=f"at most {self.context_length}"))


def last_rows(x: Tensor, last_only: bool | Tensor) -> Tensor:
    """Return the last row of each sequence of x (B, T, E), or the row at a place (B,), or all rows if False."""
    if isinstance(last_only, Tensor):
        places = ph.broadcast_to(ph.reshape(last_only, (-1, 1, 1)), (x.shape[0], 1, x.shape[2]))
        return ph.take_along_axis(x, places, 1)
    return x[:, -1:] if last_only else x
