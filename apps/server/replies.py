"""Replies to requests for text, in the forms of OpenAI's interface."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from polyhal.server.answers import Answer, Piece


@dataclass(frozen=True, slots=True)
class Reply:
    """The form of a reply: of a chat, or of a plain completion."""

    model: str
    is_chat: bool
    created: int = field(default_factory=lambda: int(time.time()))
    number: str = field(default_factory=lambda: secrets.token_hex(12))

    def whole(self, answer: Answer, pieces: list[Piece]) -> dict[str, Any]:
        """Return the reply with all text."""
        texts, reasons = [""] * answer.count, [""] * answer.count
        for piece in pieces:
            texts[piece.index] += piece.text
            reasons[piece.index] = piece.finish_reason or reasons[piece.index]
        choices = []
        for i, (text, reason) in enumerate(zip(texts, reasons, strict=True)):
            content = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
            choices.append({"index": i, **content, "logprobs": None, "finish_reason": reason})
        return {**self._head("chat.completion"), "choices": choices, "usage": usage(answer)}

    def first(self, answer: Answer) -> list[dict[str, Any]]:
        """Return the parts that begin a streamed reply."""
        if not self.is_chat:
            return []
        return [self._part(i, {"delta": {"role": "assistant", "content": ""}}, "") for i in range(answer.count)]

    def part(self, piece: Piece) -> dict[str, Any]:
        """Return a part of a streamed reply."""
        delta = {"content": piece.text} if piece.text else {}
        content = {"delta": delta} if self.is_chat else {"text": piece.text}
        return self._part(piece.index, content, piece.finish_reason)

    def last(self, answer: Answer) -> dict[str, Any]:
        """Return the part with the numbers of tokens."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(answer)}

    def _part(self, index: int, content: dict[str, Any], reason: str) -> dict[str, Any]:
        choice = {"index": index, **content, "logprobs": None, "finish_reason": reason or None}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, chat_object: str) -> dict[str, Any]:
        name, prefix = (chat_object, "chatcmpl") if self.is_chat else ("text_completion", "cmpl")
        return {"id": f"{prefix}-{self.number}", "object": name, "created": self.created, "model": self.model}


def usage(answer: Answer) -> dict[str, int]:
    """Return the numbers of tokens of a request."""
    prompt, generated = answer.prompt_tokens, answer.generated_tokens
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
