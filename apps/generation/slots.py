"""The places of a batch, in host memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyhal.generation.constraint import ConstraintState
from polyhal.generation.pace import ProposalPace
from polyhal.generation.request import TokenStream


@dataclass(slots=True)
class SequenceSlot:
    """A place of the batch. `ids` are the tokens whose keys and values its part of the cache holds or will hold."""

    index: int
    stream: TokenStream | None = None
    ids: list[int] = field(default_factory=list)
    filled: int = 0
    """Positions of the cache that are filled, or will be by steps that were launched."""
    prefilled: bool = False
    """True if all tokens but the last one are in the cache, so that steps of the batch continue it."""
    remaining: int = 0
    """Tokens of the stream that no launched step computes."""
    used: int = 0
    """Number of the engine's step in which it was last used."""
    constraint: ConstraintState | None = None
    pace: ProposalPace = field(default_factory=ProposalPace)

    def begin(self, stream: TokenStream, ids: list[int], tokens: int) -> None:
        """Continue `ids` with a number of tokens. All of them but the last one are to be in its cache first."""
        kept = min(self.common_prefix(ids), len(ids) - 1)
        self.stream, self.ids, self.remaining, self.prefilled = stream, ids, tokens, False
        self.filled = 0 if self.is_measured else kept
        self.pace = ProposalPace()
        if stream.request.constraint is not None and not stream.tokens:
            self.constraint = stream.request.constraint.start()
            if self.constraint.is_complete:
                stream.finish("stop")

    def fill(self, count: int, capacity: int) -> None:
        """Note that launched steps fill further positions."""
        self.filled += count
        self.remaining = max(self.remaining - count, 0) if self.filled < capacity else 0

    def release(self) -> None:
        """End the sequence. Its part of the cache remains for requests with the same beginning."""
        self.stream = self.constraint = None

    @property
    def is_decoding(self) -> bool:
        """True if the next step of the batch computes a token of it."""
        return self.stream is not None and self.prefilled and self.remaining > 0

    @property
    def is_measured(self) -> bool:
        """True while its prompt is processed, if log-probabilities of the prompt are requested."""
        return self.stream is not None and self.stream.request.prompt_logprobs and not self.stream.tokens

    def common_prefix(self, ids: list[int]) -> int:
        """Return the number of leading tokens of `ids` whose keys and values the slot has."""
        known = self.ids[: min(self.filled, len(self.ids))]
        return next((i for i, (a, b) in enumerate(zip(known, ids, strict=False)) if a != b), min(len(known), len(ids)))
