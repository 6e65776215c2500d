"""Tokenizers of pretrained models: any `tokenizer.json`, through the `tokenizers` library."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.text import tokenizer_json
from polyhal.text.library import converted, library
from polyhal.text.tokenizer import fit, parse, text_of

_FILE, _SETTINGS, _MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")
_TRIAL = "A text, 12 Zeichen: é 漢字 😀\n\t<x> "


class PretrainedTokenizer:
    """A tokenizer of a pretrained model.

    Names of special tokens in a text are ordinary text unless `encode` is asked to recognise them, so that a user's text cannot
    contain the marks of a conversation. `bos_id` and other roles are None if the tokenizer lacks them; `pad_id` is then the end
    of a text, or 0.
    """

    kind = "pretrained"

    def __init__(self, data: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> None:
        """Make the tokenizer of the content of `tokenizer.json` and of `tokenizer_config.json`.

        Raises CorruptFileError for data that the library cannot read, and ImportError without the library.
        """
        tokenizers = library("PretrainedTokenizer")
        found = tokenizer_json.problem(data)
        if found:
            raise CorruptFileError(message("PretrainedTokenizer", found))
        self.settings = {k: v for k, v in (settings or {}).items() if k in (*_ROLES, "add_bos_token", "add_eos_token")}
        """Settings of `tokenizer_config.json` that this tokenizer uses."""
        # Truncation and padding are the caller's business; the library allocates any padding that is asked for.
        self._data = json.dumps({**data, "truncation": None, "padding": None})
        self._lock = threading.Lock()
        with converted("PretrainedTokenizer", "the library cannot read it", "a tokenizer.json"):
            self._tokenizer = tokenizers.Tokenizer.from_str(self._data)
            roles = {role: self._id_of(self.settings.get(role)) for role in _ROLES}
            self.bos_id, self.eos_id, padding, self.unknown_id = (roles[role] for role in _ROLES)
            self.pad_id: int = next((i for i in (padding, self.eos_id) if i is not None), 0)
            _place_marks(tokenizers, self._tokenizer, self.settings)
            self._tokenizer.decode(self._tokenizer.encode(_TRIAL).ids)
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        self._size: int = 1 + max(ids.values())
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(i for i, token in added.items() if token.special)
        """Ids of all special tokens."""

    def _id_of(self, token: Any) -> int | None:
        content = token.get("content") if isinstance(token, Mapping) else token
        found: int | None = self._tokenizer.token_to_id(content) if isinstance(content, str) else None
        return found

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> PretrainedTokenizer:
        """Read the tokenizer in a folder of Hugging Face's form. Raises FileNotFoundError and CorruptFileError."""
        folder = Path(path)
        if not (folder / _FILE).is_file():
            others = [n for n in ("tokenizer.model", "vocab.json", "vocab.txt", "tekken.json") if (folder / n).exists()]
            problem = f"{folder} has no {_FILE}" + (f", only {', '.join(others)}" if others else "")
            fix = "transformers writes it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            raise FileNotFoundError(message("PretrainedTokenizer", problem, fix=fix))
        settings: dict[str, Any] = {}
        for name in (_MAP, _SETTINGS):
            if (folder / name).is_file():
                settings |= parse(text_of(folder / name))
        return cls(parse(text_of(folder / _FILE)), settings)

    @property
    def vocab_size(self) -> int:
        """Number of token ids, with ids that no token has."""
        return self._size

    def token(self, token_id: int) -> str | None:
        """Return the stored form of a token; None for an id without a token."""
        found: str | None = self._tokenizer.id_to_token(token_id)
        return found

    def id_of(self, token: str) -> int | None:
        """Return the id of a token in its stored form; None for another text."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def encode(
        self, text: str, max_len: int | None = None, *, add_bos: bool = False, recognise_special: bool = False
    ) -> list[int]:
        """Encode `text` as token ids, truncated or padded to `max_len` if given.

        With `add_bos`, tokens are added that the model expects around a text, such as its beginning. With
        `recognise_special`, names of special tokens in the text become these tokens.
        """
        with self._lock, converted("encode", "the tokenizer cannot encode the text", "another tokenizer.json"):
            self._tokenizer.encode_special_tokens = not recognise_special
            ids = self._tokenizer.encode(text, add_special_tokens=add_bos).ids
        return fit(ids, max_len, self.pad_id)

    def pieces(self, text: str) -> list[str]:
        """Cut a text into the words that are encoded one by one, in the form of the vocabulary."""
        with converted("pieces", "the tokenizer cannot cut the text", "another tokenizer.json"):
            cutter, normalizer = self._tokenizer.pre_tokenizer, self._tokenizer.normalizer
            text = text if normalizer is None else normalizer.normalize_str(text)
            return [text] if cutter is None else [piece for piece, _ in cutter.pre_tokenize_str(text)]

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Decode token ids, by default without special tokens; bytes that are not valid UTF-8 become U+FFFD.

        Ids without a token are skipped. Raises ValueError for ids outside of the vocabulary.
        """
        numbers = [int(i) for i in ids]
        for i in numbers:
            if not 0 <= i < self._size:
                raise ValueError(message("decode", f"token {i}", expected=f"0 to {self._size - 1}"))
        with converted("decode", "the tokenizer cannot decode the tokens", "another tokenizer.json"):
            text: str = self._tokenizer.decode(numbers, skip_special_tokens=not keep_special)
        return text

    def to_json(self) -> str:
        """Return the tokenizer as JSON text, for `load_tokenizer`."""
        content = {"type": self.kind, "version": 1, "tokenizer": json.loads(self._data), "settings": self.settings}
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> PretrainedTokenizer:
        """Load a tokenizer of `to_json`. Raises CorruptFileError, and ImportError without the library."""
        data = parse(text)
        if data.get("version") != 1:
            raise IncompatibleFileError(
                message("PretrainedTokenizer", f"version {data.get('version')!r}", expected="version 1")
            )
        settings = data.get("settings")
        return cls(data.get("tokenizer") or {}, settings if isinstance(settings, dict) else {})

    def __repr__(self) -> str:
        return f"PretrainedTokenizer({self.vocab_size} tokens)"


def _place_marks(tokenizers: Any, tokenizer: Any, settings: Mapping[str, Any]) -> None:
    """Replace the post-processor where the settings say whether marks of the beginning and the end are added.

    A post-processor that the file has, and no setting, remains as it is: transformers does the same.
    """
    wanted = [settings.get("add_bos_token"), settings.get("add_eos_token")]
    if all(x is None for x in wanted):
        return
    marks = []
    for role, is_added in zip(_ROLES[:2], wanted, strict=True):
        content = settings.get(role)
        content = content.get("content") if isinstance(content, Mapping) else content
        token_id = tokenizer.token_to_id(content) if isinstance(content, str) else None
        marks.append((content, token_id) if is_added and token_id is not None else None)
    first, last = marks
    template = [*([first[0]] if first else []), "$A", *([last[0]] if last else [])]
    special = sorted({m for m in marks if m})
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=template, special_tokens=special)
