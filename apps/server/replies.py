"""Replies to requests for text, in the forms of OpenAI's interface."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from polyhal.generation import TokenLogprob
from polyhal.llm import ToolCall
from polyhal.server.answers import Answer, MeasuredToken, Piece
from polyhal.text import TokenTexts


@dataclass(frozen=True, slots=True)
class Reply:
    """The form of a reply: of a chat, or of a plain completion."""

    model: str
    is_chat: bool
    texts: TokenTexts
    created: int = field(default_factory=lambda: int(time.time()))
    number: str = field(default_factory=lambda: secrets.token_hex(12))

    def whole(self, answer: Answer, pieces: list[Piece]) -> dict[str, Any]:
        """Return the reply with all text."""
        texts, reasons = [""] * answer.count, [""] * answer.count
        calls: list[list[ToolCall]] = [[] for _ in range(answer.count)]
        measured: list[list[MeasuredToken]] = [[] for _ in range(answer.count)]
        for piece in pieces:
            texts[piece.index] += piece.text
            measured[piece.index] += piece.measured
            calls[piece.index] += piece.calls
            reasons[piece.index] = piece.finish_reason or reasons[piece.index]
        choices = []
        for i, (text, reason) in enumerate(zip(texts, reasons, strict=True)):
            content: dict[str, Any] = {"text": text}
            if self.is_chat:
                made = {"tool_calls": self._calls(i, calls[i])} if calls[i] else {}
                content = {"message": {"role": "assistant", "content": text if text or not made else None, **made}}
            logprobs = self._logprobs(measured[i])
            choices.append({"index": i, **content, "logprobs": logprobs, "finish_reason": reason})
        return {**self._head("chat.completion"), "choices": choices, "usage": usage(answer)}

    def first(self, answer: Answer) -> list[dict[str, Any]]:
        """Return the parts that begin a streamed reply."""
        if not self.is_chat:
            return []
        return [self._part(i, {"delta": {"role": "assistant", "content": ""}}) for i in range(answer.count)]

    def part(self, piece: Piece) -> dict[str, Any]:
        """Return a part of a streamed reply."""
        delta: dict[str, Any] = {"content": piece.text} if piece.text else {}
        if piece.calls:
            calls = self._calls(piece.index, piece.calls)
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        content = {"delta": delta} if self.is_chat else {"text": piece.text}
        return self._part(piece.index, content, piece.finish_reason, piece.measured)

    def last(self, answer: Answer) -> dict[str, Any]:
        """Return the part with the numbers of tokens."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(answer)}

    def _part(
        self, index: int, content: dict[str, Any], reason: str = "", measured: Sequence[MeasuredToken] = ()
    ) -> dict[str, Any]:
        choice = {"index": index, **content, "logprobs": self._logprobs(measured), "finish_reason": reason or None}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _calls(self, choice: int, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
        """Return calls of tools, whose ids are unique in a conversation."""
        return [
            {
                "id": f"call_{self.number[:16]}{choice}x{i}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for i, call in enumerate(calls)
        ]

    def _logprobs(self, measured: Sequence[MeasuredToken]) -> dict[str, Any] | None:
        """Return log-probabilities in the form of a chat, or in the older one of plain completions."""
        if not measured:
            return None
        if self.is_chat:
            return {"content": [self._entry(row) for row in measured], "refusal": None}
        return {
            "tokens": [self.texts[row.token].text for row in measured],
            "token_logprobs": [None if row.logprob is None else _finite(row.logprob.logprob) for row in measured],
            "top_logprobs": [None if row.logprob is None else self._alternatives(row.logprob) for row in measured],
            "text_offset": [row.offset for row in measured],
        }

    def _alternatives(self, row: TokenLogprob) -> dict[str, float]:
        """Return log-probabilities by text: the largest one of tokens with equal texts."""
        return {self.texts[i].text: _finite(value) for i, value in reversed(row.alternatives)}

    def _entry(self, row: MeasuredToken) -> dict[str, Any]:
        assert row.logprob is not None
        best = [self._named(token, value) for token, value in row.logprob.alternatives]
        return {**self._named(row.token, row.logprob.logprob), "top_logprobs": best}

    def _named(self, token: int, logprob: float) -> dict[str, Any]:
        text, data = self.texts[token]
        return {"token": text, "logprob": _finite(logprob), "bytes": None if data is None else list(data)}

    def _head(self, chat_object: str) -> dict[str, Any]:
        name, prefix = (chat_object, "chatcmpl") if self.is_chat else ("text_completion", "cmpl")
        return {"id": f"{prefix}-{self.number}", "object": name, "created": self.created, "model": self.model}


def _finite(value: float) -> float:
    """Return a log-probability as JSON can hold it. OpenAI's interface, too, has -9999 for a probability of 0."""
    return max(value, -9999.0)


def usage(answer: Answer) -> dict[str, int]:
    """Return the numbers of tokens of a request."""
    prompt, generated = answer.prompt_tokens, answer.generated_tokens
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
