"""Generation without a cache: each token computes the whole context."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyhal import Tensor
from polyhal.generation.batch_state import BatchState
from polyhal.generation.model import GeneratingModel, evaluating
from polyhal.generation.request import GenerationRequest
from polyhal.generation.slots import SequenceSlot


def tokens_without_cache(model: GeneratingModel, request: GenerationRequest) -> Iterator[int]:
    """Yield the tokens of a request; they equal an engine's except for rounding."""
    ids, sampling = [int(i) for i in request.prompt], request.sampling
    state: BatchState | None = None
    for _ in range(request.max_tokens):
        if len(ids) > model.context_length:
            if not request.slide:
                return
            ids = ids[-max(model.context_length // 2, 1) :]
        with evaluating(model):
            logits = model(Tensor(np.array([ids], np.int32), device=model.device), last_only=True)
            if state is None:
                state = BatchState(1, logits.shape[-1], model.device)
                state.join(SequenceSlot(0), sampling, ids)
                state.active.fill_(1)
            token = state.choose(logits, state.variant([request])).tokens.item()
        if token in request.stop_ids:
            return
        yield int(token)
        ids.append(int(token))
