"""Steps that were launched, whose tokens are not read back yet."""

from __future__ import annotations

from collections.abc import Mapping, Set

from polyhal.generation.batch_state import Chosen
from polyhal.generation.logprobs import TokenLogprob, read_row
from polyhal.generation.request import TokenStream
from polyhal.generation.slots import SequenceSlot


class LaunchedStep:
    """A step of the batch on its way. The copy of its results to the host begins at once."""

    def __init__(
        self,
        members: list[tuple[SequenceSlot, TokenStream]],
        chosen: Chosen,
        proposals: Mapping[int, list[int]],
        forced: Set[int],
    ) -> None:
        self.members = members
        self._proposals, self._forced = proposals, forced
        self._tokens = chosen.tokens.numpy_async()
        self._kept = None if chosen.kept is None else chosen.kept.numpy_async()
        self._measures = None if chosen.measures is None else chosen.measures.numpy_async()

    def proposed(self, slot: SequenceSlot) -> int:
        """Return the number of tokens that were proposed for a slot."""
        return len(self._proposals[slot.index])

    def is_forced(self, slot: SequenceSlot) -> bool:
        """Return whether a constraint forced the proposals of a slot."""
        return slot.index in self._forced

    def tokens(self, slot: SequenceSlot, stream: TokenStream) -> list[tuple[int, TokenLogprob | None]]:
        """Wait for the tokens of a slot, with their log-probabilities if these are requested."""
        count = 1 if self._kept is None else 1 + int(self._kept.result()[slot.index])
        tokens = self._tokens.result()[slot.index, :count].tolist()
        wanted = stream.request.logprobs
        if wanted is None or self._measures is None:
            return [(token, None) for token in tokens]
        rows = self._measures.result()[slot.index]
        return [(token, read_row(row, wanted)) for token, row in zip(tokens, rows[:count], strict=True)]
