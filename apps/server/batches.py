"""A language model of files as a server runs it: with requests that share a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.generation import (
    ConstraintError,
    GenerationRequest,
    SamplingParameters,
    TokenConstraint,
    TokenStream,
)
from polyhal.llm import LanguageModel
from polyhal.text import Tokenizer


class BatchGenerator:
    """Generates tokens of up to `slots` requests at a time by a language model."""

    def __init__(self, model: LanguageModel, slots: int, lookup: bool = False) -> None:
        """Allocates the cache. `lookup` is an argument of `LanguageModel.stream_ids`."""
        self.slots = slots
        self._engine = model.engine(slots, lookup=lookup)
        self._stop_ids = frozenset(model.stop_ids)

    def warm_up(self) -> None:
        """Record the steps with and without drawn tokens, so that the first clients do not wait for it."""
        for temperature in (0.0, 1.0):
            list(self._engine.submit(GenerationRequest([0], 2, SamplingParameters(temperature=temperature))))

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs."""
        return self._engine.is_idle

    def submit(self, request: GenerationRequest) -> TokenStream:
        """Queue a request, which the model's stop tokens end."""
        return self._engine.submit(replace(request, stop_ids=request.stop_ids | self._stop_ids))

    def step(self) -> None:
        """Advance all requests. An error ends all of them."""
        self._engine.step()


class ServedLanguageModel:
    """A language model with the name that clients use."""

    def __init__(self, model: LanguageModel, name: str = "") -> None:
        self.name = name or model.files.name
        self.context = model.context
        self.tokenizer: Tokenizer = model.tokenizer
        sampling = model.sampling()
        stated = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        self.defaults: Mapping[str, float] = {key: value for key, value in stated.items() if value is not None}
        self._model = model

    @property
    def device_memory(self) -> int:
        """Bytes in use on the model's device."""
        return self._model.model.device.memory_stats().used

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self._model.ids(text)

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
        """Return the tokens of a conversation with the beginning of the answer."""
        return self._model.chat_ids(messages, tools)

    def constraint(self, kind: str, value: Any) -> TokenConstraint:
        """Compile a constraint of answers. Raises ConstraintError."""
        try:
            compiler = self._model.grammars
        except ImportError as error:
            raise ConstraintError(str(error)) from None
        if kind == "tools":
            return self._model.tool_calls.grammar(compiler, value)
        found: TokenConstraint = getattr(compiler, kind)(value)
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a vector per text."""
        return self._model.embed(texts)
