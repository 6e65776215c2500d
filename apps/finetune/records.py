"""Records of a data set as tokens: conversations, prompts with completions, and plain texts.

A file of JSON lines has an object per line, and a JSON file may be a list of objects:
`{"messages": [{"role": ..., "content": ...}, ...]}`, also with "tools"; `{"prompt": ..., "completion": ...}`; or
`{"text": ...}`. Any other file is one plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from polyhal.hal.errors import PolyhalError, message
from polyhal.utils.files import parse_json

RECORD_FORMS = '{"messages": [...]}, {"prompt": "...", "completion": "..."} or {"text": "..."}'
"""Forms of records, for messages."""
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class RecordError(PolyhalError, ValueError):
    """A record of a data set cannot be used."""


class TextEncoder(Protocol):
    """The part of a pretrained tokenizer that records need."""

    eos_id: int | None

    def encode(
        self, text: str, max_len: int | None = None, *, add_bos: bool = False, recognise_special: bool = False
    ) -> list[int]:
        """Encode `text` as token ids."""


class ConversationEncoder(Protocol):
    """Writes conversations as a model expects them; see `polyhal.llm.ChatEncoder`."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the text of a conversation."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a part of a rendered text."""


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
            raise RecordError(
                message("finetune", f"{path} is not UTF-8 text: {error}", expected=RECORD_FORMS)
            ) from error
        return
    if path.suffix == ".json" and (array := _array(path)) is not None:
        yield from array
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
            yield place, _object(record, place)


def _array(path: Path) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the records of a file that is one JSON list; None for other files."""
    with path.open("rb") as file:
        if not file.read(4096).lstrip().startswith(b"["):
            return None
    try:
        records = parse_json(path.read_bytes(), path)
    except PolyhalError:
        return None  # lines of lists, whose errors name the line
    return [(f"record {i} of {path}", _object(r, f"record {i} of {path}")) for i, r in enumerate(records, 1)]


def _object(record: Any, place: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise RecordError(message("finetune", f"{place} is a {type(record).__name__}", expected=RECORD_FORMS))
    return record


def encode_record(
    record: Mapping[str, Any],
    place: str,
    tokenizer: TextEncoder,
    chat: ConversationEncoder | None = None,
    *,
    learn_all: bool = False,
    recognise_special: bool = False,
) -> Example:
    """Encode a record. Of a conversation the assistant's messages are learned, of a prompt its completion; or all tokens.

    Where a template changes earlier answers of a conversation, such as removing their reasoning, only the last is learned.
    Names of special tokens in prompts, completions and texts are ordinary text, unless `recognise_special`. Raises
    RecordError.
    """
    if "messages" in record:
        pieces = _conversation(record, place, chat)
    else:
        pieces = []
        for text, learn in _plain(record, place):
            ids = tokenizer.encode(text, add_bos=not pieces, recognise_special=recognise_special)
            pieces.append((ids, learn))
        if tokenizer.eos_id is not None:
            pieces.append(([tokenizer.eos_id], True))
    ids = [i for piece, _ in pieces for i in piece]
    learned = [learn or learn_all for piece, learn in pieces for _ in piece]
    if not any(learned[1:]):
        raise RecordError(message("finetune", f"{place} has no tokens to learn", expected=RECORD_FORMS))
    return Example(ids, learned)


def _plain(record: Mapping[str, Any], place: str) -> list[tuple[str, bool]]:
    """Return the texts of a record without messages, each with True if it is learned."""
    if "completion" in record:
        return [(_text(record, "prompt", place), False), (_text(record, "completion", place), True)]
    if "text" in record:
        return [(_text(record, "text", place), True)]
    raise RecordError(message("finetune", f"{place} has the keys {sorted(map(str, record))}", expected=RECORD_FORMS))


def _conversation(
    record: Mapping[str, Any], place: str, chat: ConversationEncoder | None
) -> list[tuple[list[int], bool]]:
    messages, tools = record["messages"], record.get("tools")
    if chat is None:
        fix = 'use {"prompt": ..., "completion": ...} records'
        raise RecordError(message("finetune", f"{place} is a conversation and the model has no chat template", fix=fix))
    if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise RecordError(message("finetune", f"{place} has unusable messages", expected="a list of objects with role"))
    if tools is not None and not (isinstance(tools, list) and all(isinstance(t, dict) for t in tools)):
        raise RecordError(message("finetune", f"{place} has unusable tools", expected="a list of objects"))

    def rendered(count: int, answering: bool) -> str:
        try:
            return chat.render(messages[:count], tools, add_generation_prompt=answering)
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
                return [(chat.encode(text), learn) for text, learn in (*pieces, (whole[len(done) :], False))]
    problem = f"{place}: the template's prompt is not the beginning of the conversation with its answer"
    raise RecordError(message("finetune", problem, fix='use {"prompt": ..., "completion": ...} records'))


def _text(record: Mapping[str, Any], name: str, place: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise RecordError(message("finetune", f"{place} has {name} {value!r}", expected="a text"))
    return value
