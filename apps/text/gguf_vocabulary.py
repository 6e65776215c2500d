"""Vocabularies in the metadata of GGUF files, as the content of a `tokenizer.json`.

Model "llama" is SentencePiece's: a text is cut into characters, and neighbours are joined as long as the result is a token,
best score first. As BPE, a token's score ranks its merges. Model "gpt2" is byte-level BPE with merges of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from polyhal.text.pretrained import PretrainedTokenizer

_PREFIX = "tokenizer.ggml."
_SPACE = "\u2581"
_LONGEST_PIECE = 256
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


class TokenType(IntEnum):
    """Types of tokens in GGUF files."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> PretrainedTokenizer:
    """Make the tokenizer that the metadata of a GGUF file describe.

    Raises IncompatibleFileError for a vocabulary of another kind, and for files without one; CorruptFileError for damaged ones.
    """
    kind = metadata.get(f"{_PREFIX}model")
    if kind in (None, "none", "no_vocab"):
        problem = "the file has no vocabulary"
        fix = "use a file with a vocabulary, or token ids in place of text"
        raise IncompatibleFileError(message("tokenizer_from_gguf", problem, fix=fix))
    if kind not in ("llama", "gpt2"):
        expected = "llama (SentencePiece) or gpt2 (byte-level BPE)"
        raise IncompatibleFileError(message("tokenizer_from_gguf", f"vocabulary of kind {kind!r}", expected=expected))
    vocabulary = _Vocabulary(metadata)
    return vocabulary.sentencepiece() if kind == "llama" else vocabulary.byte_level()


class _Vocabulary:
    """The lists of a vocabulary, checked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        tokens = self._list("tokens", str)
        if not tokens:
            raise CorruptFileError(message("tokenizer_from_gguf", f"{_PREFIX}tokens is missing or empty"))
        seen: set[str] = set()
        self.tokens: list[str] = []
        for i, token in enumerate(tokens):  # ids of repeated tokens keep a name that no text contains
            name = f"\ufffftoken {i}" if token in seen or not token else token
            seen.add(name)
            self.tokens.append(name)
        self.types = self._list("token_type", int) or [TokenType.NORMAL] * len(tokens)
        self.scores = self._list("scores", (float, int)) or [0.0] * len(tokens)
        for name, values in (("token_type", self.types), ("scores", self.scores)):
            if len(values) != len(tokens):
                problem = f"{_PREFIX}{name} has {len(values)} values"
                raise CorruptFileError(
                    message("tokenizer_from_gguf", problem, expected=f"{len(tokens)}, one per token")
                )

    def _list(self, name: str, kind: Any) -> list[Any]:
        values = self._metadata.get(f"{_PREFIX}{name}")
        if values is None:
            return []
        values = values.tolist() if isinstance(values, np.ndarray) else values
        if not isinstance(values, list):
            raise CorruptFileError(
                message("tokenizer_from_gguf", f"{_PREFIX}{name} is {values!r:.40}", expected="a list")
            )
        other = next((v for v in values if not isinstance(v, kind)), None)
        if other is not None:
            problem = f"{_PREFIX}{name} is a list with {other!r:.40}"
            raise CorruptFileError(message("tokenizer_from_gguf", problem))
        return values

    def _token(self, role: str, default: int | None = None) -> str | None:
        """Return the token of a role, such as bos; None if there is none."""
        token_id = self._metadata.get(f"{_PREFIX}{role}_token_id", default)
        known = isinstance(token_id, int) and 0 <= token_id < len(self.tokens)
        return self.tokens[token_id] if known else None

    def _made(self, data: dict[str, Any], add_bos: bool, defaults: tuple[int | None, ...]) -> PretrainedTokenizer:
        added = [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != TokenType.USER_DEFINED,
            }
            for i, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
        ]
        roles = ("bos", "eos", "unknown", "padding")
        bos, eos, unknown, padding = (self._token(r, d) for r, d in zip(roles, defaults, strict=True))
        settings = {
            "bos_token": bos,
            "eos_token": eos,
            "unk_token": unknown,
            "pad_token": padding,
            "add_bos_token": bool(self._metadata.get(f"{_PREFIX}add_bos_token", add_bos)),
            "add_eos_token": bool(self._metadata.get(f"{_PREFIX}add_eos_token", False)),
        }
        return PretrainedTokenizer({"version": "1.0", "added_tokens": added, "post_processor": None, **data}, settings)

    def sentencepiece(self) -> PretrainedTokenizer:
        """Return the tokenizer of a vocabulary with scores."""
        prefixed = bool(self._metadata.get(f"{_PREFIX}add_space_prefix", True))
        space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
        steps = [{"type": "Prepend", "prepend": _SPACE}, space] if prefixed else [space]
        decoders: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if prefixed:
            decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        model = {
            "type": "BPE",
            "unk_token": self._token("unknown", 0),
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(self.tokens)},
            "merges": self._merges_by_score(),
        }
        data = {
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": model,
        }
        return self._made(data, True, (1, 2, 0, None))

    def _merges_by_score(self) -> list[list[str]]:
        """Return the pairs of tokens that make a token, best score first."""
        joined = {
            t: i for i, (t, kind) in enumerate(zip(self.tokens, self.types, strict=True)) if kind == TokenType.NORMAL
        }
        pairs = []
        for token, i in joined.items():
            if not 1 < len(token) <= _LONGEST_PIECE:
                continue
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if (left in joined or cut == 1) and (right in joined or cut == len(token) - 1):
                    pairs.append((-self.scores[i], i, left, right))
        vocabulary = set(self.tokens)
        pairs.sort(key=lambda pair: pair[:2])
        return [[left, right] for _, _, left, right in pairs if left in vocabulary and right in vocabulary]

    def byte_level(self) -> PretrainedTokenizer:
        """Return the tokenizer of a vocabulary with merges."""
        name = self._metadata.get(f"{_PREFIX}pre", "default")
        rule = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
        if rule is None:
            expected = f"one of {', '.join(PRE_TOKENIZERS)}"
            raise IncompatibleFileError(message("tokenizer_from_gguf", f"{_PREFIX}pre is {name!r}", expected=expected))
        merges = self._list("merges", str)
        cut = [m.split(" ") for m in merges]
        if not merges or not all(len(parts) == 2 for parts in cut):
            problem = next(
                (f"merge {m!r}" for m, parts in zip(merges, cut, strict=True) if len(parts) != 2), "no merges"
            )
            raise CorruptFileError(message("tokenizer_from_gguf", problem, expected="pairs of tokens"))
        model = {
            "type": "BPE",
            "ignore_merges": rule.ignore_merges,
            "vocab": {token: i for i, token in enumerate(self.tokens)},
            "merges": cut,
        }
        data = {
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer_of(rule),
            "decoder": _BYTE_LEVEL,
            "model": model,
        }
        return self._made(data, rule.add_bos, (None, None, None, None))


def pre_tokenizer_of(rule: PreTokenizer) -> dict[str, Any]:
    """Return the `pre_tokenizer` of a `tokenizer.json` for a rule."""
    splits = [
        {"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False} for e in rule.expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, _BYTE_LEVEL]}
