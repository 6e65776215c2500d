"""Records of a data set as tokens: conversations, prompts with completions, and plain texts.

A file of JSON lines has an object per line: `{"messages": [{"role": ..., "content": ...}, ...]}`, also with "tools";
`{"prompt": ..., "completion": ...}`; or `{"text": ...}`. Any other file is one plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from polyhal.hal.errors import PolyhalError, message
from polyhal.utils.files import parse_json

_FORMS = '{"messages": [...]}, {"prompt": "...", "completion": "..."} or {"text": "..."}'
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class RecordError(PolyhalError, ValueError):
    """A record of a data set cannot be used."""


class TextEncoder(Protocol):
    """The part of a pretrained tokenizer that records need."""

    bos_id: int | None
    eos_id: int | None

    def encode(
        self, text: str, max_len: int | None = None, *, add_bos: bool = False, recognise_special: bool = False
    ) -> list[int]:
        """Encode `text` as token ids."""

    def token(self, token_id: int) -> str | None:
        """Return the stored form of a token."""


class Template(Protocol):
    """A chat template."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Return the text of a conversation."""


@dataclass(frozen=True, slots=True)
class Example:
    """Tokens, and which of them the model learns to predict."""

    ids: list[int]
    learned: list[bool]


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of a file, each with its place for messages. Raises OSError and RecordError."""
    if path.suffix not in _JSON_LINES:
        try:
            yield str(path), {"text": path.read_text(encoding="utf-8")}
        except UnicodeDecodeError as error:
            raise RecordError(message("finetune", f"{path} is not UTF-8 text: {error}", expected=_FORMS)) from error
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                record = parse_json(line, place)
            except PolyhalError as error:
                raise RecordError(str(error)) from error
            if not isinstance(record, dict):
                raise RecordError(message("finetune", f"{place} is a {type(record).__name__}", expected=_FORMS))
            yield place, record


def encode_record(
    record: Mapping[str, Any],
    place: str,
    tokenizer: TextEncoder,
    template: Template | None = None,
    learn_all: bool = False,
) -> Example:
    """Encode a record. Of a conversation the assistant's messages are learned, of a prompt its completion; or all tokens.

    Where a template changes earlier answers of a conversation, such as removing their reasoning, only the last is learned.
    Raises RecordError.
    """
    if "messages" in record:
        pieces = _conversation(record, place, tokenizer, template)
    elif "completion" in record:
        prompt, completion = (_text(record, name, place) for name in ("prompt", "completion"))
        pieces = [(prompt, False), (completion + _token(tokenizer, tokenizer.eos_id), True)]
    elif "text" in record:
        pieces = [(_text(record, "text", place) + _token(tokenizer, tokenizer.eos_id), True)]
    else:
        raise RecordError(message("finetune", f"{place} has the keys {sorted(map(str, record))}", expected=_FORMS))
    ids: list[int] = []
    learned: list[bool] = []
    plain = "messages" not in record
    for text, learn in pieces:
        # A template writes the marks of a conversation itself, also the beginning of the text.
        new = tokenizer.encode(text, add_bos=plain and not ids, recognise_special=True)
        ids += new
        learned += [learn or learn_all] * len(new)
    if not any(learned):
        raise RecordError(message("finetune", f"{place} has no tokens to learn", expected=_FORMS))
    return Example(ids, learned)


def _conversation(
    record: Mapping[str, Any], place: str, tokenizer: TextEncoder, template: Template | None
) -> list[tuple[str, bool]]:
    messages = record["messages"]
    if template is None:
        fix = 'use {"prompt": ..., "completion": ...} records'
        raise RecordError(message("finetune", f"{place} is a conversation and the model has no chat template", fix=fix))
    if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise RecordError(message("finetune", f"{place} has unusable messages", expected="a list of objects with role"))
    marks = {"bos_token": _token(tokenizer, tokenizer.bos_id), "eos_token": _token(tokenizer, tokenizer.eos_id)}
    variables = {**marks, **({"tools": record["tools"]} if "tools" in record else {})}

    def rendered(count: int, answering: bool) -> str:
        try:
            return template.render(messages[:count], add_generation_prompt=answering, **variables)
        except PolyhalError as error:
            raise RecordError(message("finetune", f"{place}: {error}")) from error

    answers = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    if not answers:
        raise RecordError(message("finetune", f"{place} has no message of the assistant", expected="at least one"))
    whole = rendered(len(messages), False)
    for chosen in (answers, answers[-1:]):
        pieces: list[tuple[str, bool]] = []
        done = ""
        for i in chosen:
            before, after = rendered(i, True), rendered(i + 1, False)
            if not (before.startswith(done) and after.startswith(before)):
                break
            pieces += [(before[len(done) :], False), (after[len(before) :], True)]
            done = after
        else:
            if whole.startswith(done):
                return [*pieces, (whole[len(done) :], False)] if len(whole) > len(done) else pieces
    problem = f"{place}: the template's prompt is not the beginning of the conversation with its answer"
    raise RecordError(message("finetune", problem, fix='use {"prompt": ..., "completion": ...} records'))


def _text(record: Mapping[str, Any], name: str, place: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise RecordError(message("finetune", f"{place} has {name} {value!r}", expected="a text"))
    return value


def _token(tokenizer: TextEncoder, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token(token_id) or ""
