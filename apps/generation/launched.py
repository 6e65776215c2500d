"""Steps that were launched, whose tokens are not read back yet."""

from __future__ import annotations

from polyhal import Tensor
from polyhal.generation.logprobs import TokenLogprob, read_row
from polyhal.generation.request import TokenStream
from polyhal.generation.slots import SequenceSlot


class LaunchedStep:
    """A step of the batch on its way. The copy of its results to the host begins at once."""

    def __init__(
        self, members: list[tuple[SequenceSlot, TokenStream]], tokens: Tensor, measures: Tensor | None
    ) -> None:
        self.members = members
        self._tokens = tokens.numpy_async()
        self._measures = None if measures is None else measures.numpy_async()

    def token(self, slot: SequenceSlot, stream: TokenStream) -> tuple[int, TokenLogprob | None]:
        """Wait for the token of a slot, and its log-probabilities if they are requested."""
        token = int(self._tokens.result()[slot.index, 0])
        wanted = stream.request.logprobs
        if wanted is None or self._measures is None:
            return token, None
        return token, read_row(self._measures.result()[slot.index], wanted)
