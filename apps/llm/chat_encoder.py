"""Conversations as tokens, in which only the chat template can write special tokens."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polyhal.llm.chat_template import ChatTemplate
from polyhal.text import PretrainedTokenizer

_DIGITS = 24
"""Digits of the mark that hides names; no filter of a template changes digits."""


class ChatEncoder:
    """Renders conversations by a template, and encodes the text.

    Names of special tokens in messages and tools are ordinary text, unless `recognise_special`. Texts of several calls of
    `render` can be compared and divided before `encode`.
    """

    def __init__(
        self, tokenizer: PretrainedTokenizer, template: ChatTemplate, *, recognise_special: bool = False
    ) -> None:
        self._tokenizer, self._template = tokenizer, template
        names = [] if recognise_special else [tokenizer.token(i) for i in tokenizer.special_ids]
        self._names = sorted(filter(None, names), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._names))) if self._names else None
        self._mark = f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}}"
        self._roles = {
            "bos_token": _name(tokenizer, tokenizer.bos_id),
            "eos_token": _name(tokenizer, tokenizer.eos_id),
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation, with marks in place of names. The arguments are `ChatTemplate.render`'s."""
        return self._template.render(
            self._hidden(messages),
            tools=self._hidden(tools),
            add_generation_prompt=add_generation_prompt,
            **{**self._roles, **variables},
        )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text of `render`, or of a part of it."""
        ids: list[int] = []
        for piece, is_hidden in self._pieces(text):
            ids += self._tokenizer.encode(piece, recognise_special=not is_hidden)
        return ids

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str) and self._pattern is not None:
            return self._pattern.sub(lambda m: f"{self._mark}{self._names.index(m[0]):06}", value)
        if isinstance(value, Mapping):
            # Templates compare roles and keys with words, which may be names of special tokens, too.
            return {
                self._unless_word(k): self._unless_word(v) if k == "role" else self._hidden(v) for k, v in value.items()
            }
        return [self._hidden(v) for v in value] if isinstance(value, (list, tuple)) else value

    def _unless_word(self, value: Any) -> Any:
        return value if isinstance(value, str) and value.isidentifier() else self._hidden(value)

    def _pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a rendered text, with True for names that were hidden."""
        for i, part in enumerate(re.split(f"{self._mark}([0-9]{{6}})", text)):
            if i % 2:
                yield self._names[int(part)], True
            elif part:
                yield part, False


def _name(tokenizer: PretrainedTokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token(token_id) or ""
