"""Proposals of a smaller model with the same tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import polyhal as ph
from polyhal import Tensor, jit
from polyhal.generation.batch_state import BatchState, StepVariant
from polyhal.generation.model import GeneratingModel, evaluating
from polyhal.generation.prompts import PromptReader
from polyhal.generation.slots import SequenceSlot


class DraftProposer:
    """Proposes the tokens that a draft model draws, with the sampling parameters and random numbers of the sequences.

    With equal random numbers, models whose probabilities are close draw the same token most of the time.
    """

    def __init__(self, model: GeneratingModel, slots: int, captured: bool = True) -> None:
        self.model = model
        self._cache = model.make_cache(slots)
        self._capacity = min(self._cache.capacity, model.context_length)
        self._prompts = PromptReader(model, self._cache, captured)
        self._texts: list[list[int]] = [[] for _ in range(slots)]
        """Tokens of each sequence whose keys and values the draft model has."""
        self._state: BatchState | None = None
        self._steps = jit(self._draw, warm_up=False) if captured else self._draw

    def propose(self, wanted: Mapping[int, int], slots: list[SequenceSlot], state: BatchState) -> dict[int, list[int]]:
        """Draw tokens for all slots in one launch, after the draft model has processed the rest of their texts."""
        width = max(wanted.values(), default=0)
        fitting = {i: most for i, most in wanted.items() if most and len(slots[i].ids) + width <= self._capacity}
        if not fitting:
            return {}
        self._state = state
        with evaluating(self.model):
            for i in fitting:
                self._follow(slots[i])
            lengths = np.array([len(text) for text in self._texts], np.int32)
            self._cache.lengths.copy_(Tensor(lengths, device=self.model.device))
            self._cache.length = max(len(slots[i].ids) - 1 for i in fitting)
            draws = any((stream := slots[i].stream) is not None and stream.request.sampling.draws for i in fitting)
            drawn = self._steps(StepVariant(draws, biased=state.bias is not None), width).numpy()
        for i in fitting:
            self._texts[i] += [slots[i].ids[-1], *drawn[i].tolist()]
        return {i: drawn[i, :most].tolist() for i, most in fitting.items()}

    def _follow(self, slot: SequenceSlot) -> None:
        """Process the tokens of a slot but the last one, as far as the draft model has others or none."""
        known, ids = self._texts[slot.index], slot.ids[:-1]
        same = min(len(known), len(ids))
        if known[:same] != ids[:same]:
            same = next(i for i in range(same) if known[i] != ids[i])
        if same < len(ids):
            self._prompts.read(slot.index, ids[same:], same)
        self._texts[slot.index] = ids

    def _draw(self, variant: StepVariant, width: int) -> Tensor:
        """Draw `width` tokens one after the other, and process the last one, too; a captured step."""
        assert self._state is not None
        ids, drawn = self._state.ids, []
        for i in range(width + 1):
            logits = self.model(ids, self._cache, last_only=True)
            if i < width:
                ids = self._state.draw(logits[:, -1], variant, i)
                drawn.append(ids)
        return ph.cat(drawn, 1)
