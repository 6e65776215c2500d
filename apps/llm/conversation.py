"""A conversation with a language model: its messages, its settings, and a context that overflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polyhal.generation import GenerationEngine, GenerationRequest, TokenStream
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, ShapeError, message
from polyhal.llm.language_model import LanguageModel
from polyhal.text import decode_stream
from polyhal.utils.files import parse_json, write_json

_SCHEMA = 1
_ROLES = ("system", "user", "assistant", "tool")
_RESERVE = 4
"""The share 1/4 of the context is kept for the answer, if older messages can be dropped instead."""


@dataclass(slots=True)
class ChatSettings:
    """Settings of answers; None for the model's own."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    lookup: bool = False
    """True to propose tokens that followed the same words before."""


@dataclass(slots=True)
class Conversation:
    """Messages and answers. An answer that is stopped half-way is kept as far as it was written."""

    model: LanguageModel
    settings: ChatSettings = field(default_factory=ChatSettings)
    messages: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0
    """Number of the oldest messages that the last answer did not see."""
    answer: TokenStream | None = None
    """Tokens of the last answer."""
    _engine: GenerationEngine | None = None
    """Engine whose cache has the tokens of the conversation so far."""

    @property
    def system(self) -> str:
        """The text of the system message; empty if there is none."""
        first = self.messages[0] if self.messages else {}
        return str(first["content"]) if first.get("role") == "system" else ""

    @system.setter
    def system(self, text: str) -> None:
        rest = self.messages[1:] if self.system else self.messages
        self.messages = [{"role": "system", "content": text}, *rest] if text else list(rest)

    def reset(self) -> None:
        """Remove all messages but the system message."""
        self.messages = self.messages[:1] if self.system else []

    def ask(self, text: str) -> Iterator[str]:
        """Add a question, and yield the answer as it is sampled. Raises ShapeError if the question fills the context."""
        before = list(self.messages)
        self.messages.append({"role": "user", "content": text})
        yield from self._answer(before)

    def ask_again(self) -> Iterator[str]:
        """Yield another answer to the last question."""
        before = list(self.messages)
        if before and before[-1]["role"] == "assistant":
            self.messages.pop()
        if not self.messages or self.messages[-1]["role"] != "user":
            self.messages = before
            raise ShapeError(message("chat", "there is no question yet"))
        yield from self._answer(before)

    def set_number(self, name: str, value: float | None) -> None:
        """Change a number of the settings. Raises ValueError for a value outside of its range."""
        changed = replace(self.settings)
        setattr(changed, name, value)
        self._request([0], changed)
        self.settings = changed

    def _request(self, ids: list[int], s: ChatSettings) -> GenerationRequest:
        return self.model.request(
            ids, s.max_tokens, temperature=s.temperature, top_k=s.top_k, top_p=s.top_p, seed=s.seed
        )

    def _answer(self, before: list[dict[str, Any]]) -> Iterator[str]:
        """Yield an answer. An error before its first text restores the messages `before`."""
        s = self.settings
        try:
            request = self._request(self._fitting_ids(), s)
        except Exception:
            self.messages = before
            raise
        parts: list[str] = []
        self.answer = None
        try:
            if self._engine is None:
                self._engine = self.model.engine(lookup=s.lookup)
            self.answer = self._engine.submit(request)
            for part in decode_stream(self.model.tokenizer, self.answer):
                parts.append(part)
                yield part
        finally:  # also when Ctrl-C stops the answer
            self.messages.append({"role": "assistant", "content": "".join(parts)})
            if self.answer is not None:
                self.answer.cancel()
                if self.answer.finish_reason == "error":  # a step was interrupted: its graph may be incomplete
                    self._engine = None

    def _fitting_ids(self) -> list[int]:
        """Return the tokens of the newest messages that leave room for an answer."""
        head = self.messages[:1] if self.system else []
        rest = self.messages[len(head) :]
        limit = self.model.context - max(1, self.model.context // _RESERVE)
        self.dropped = 0
        while True:
            ids = self.model.chat_ids([*head, *rest])
            if len(ids) <= limit or len(rest) <= 1:
                break
            step = 2 if len(rest) > 2 else 1  # a question and its answer
            rest, self.dropped = rest[step:], self.dropped + step
        if len(ids) >= self.model.context:
            problem = f"the message and its context are {len(ids)} tokens"
            fix = "use --context or a shorter message"
            raise ShapeError(message("chat", problem, expected=f"less than {self.model.context}", fix=fix))
        return ids

    def save(self, path: Path) -> None:
        """Write the messages to a JSON file. Raises OSError."""
        write_json(path, {"schema": _SCHEMA, "messages": self.messages})

    def load(self, path: Path) -> None:
        """Replace the messages by the messages of `save`. Raises OSError and CorruptFileError."""
        content = parse_json(path.read_bytes(), path)
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            raise IncompatibleFileError(message("chat", f"{path} is not a saved conversation"))
        found = content.get("messages")
        rows: list[Any] = found if isinstance(found, list) else [None]
        for row in rows:
            sound = isinstance(row, dict) and row.get("role") in _ROLES and isinstance(row.get("content"), str)
            if not sound:
                raise CorruptFileError(
                    message("chat", f"{path} has a message {row!r:.60}", expected="role and content")
                )
        self.messages = [{"role": row["role"], "content": row["content"]} for row in rows]
