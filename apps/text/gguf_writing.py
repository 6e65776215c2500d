"""Tokenizers as metadata of GGUF files: the inverse of `gguf_vocabulary`, which reads them back as a check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.text.gguf_vocabulary import TokenType, pre_tokenizer_of, tokenizer_from_gguf
from polyhal.text.library import library
from polyhal.text.pre_tokenizers import PRE_TOKENIZERS
from polyhal.text.pretrained import PretrainedTokenizer

_PREFIX = "tokenizer.ggml."
_SPACE = "\u2581"
_PROBES = (
    "It's a test, isn't it? I'LL say WE'VE 1 12 123 1234 1234567 times; x+=1.5e-3 // #tag @name",
    "def camelCaseWords(snake_case, HTTPServer):\n    return {'a': [0x1F, \"b\"]}\n\n\n\t\tend  \n ",
    "  two  spaces   three and\u00a0more\r\n\r\nlines; été Über naïve İstanbul Ελλάδα",
    "日本語の文章 中文\uff0c标点。 한국어 ไทย \u0905नुवाद שלום",
    "\U0001f600 \U0001f3f3\ufe0f\u200d\U0001f308 $5.00 50% €9 ~^|`<=> ... --- !!! 1½ \u2167",
)
"""Texts by which tokenizers are compared: contractions, numbers, code, white space, alphabets and symbols."""


def gguf_from_tokenizer(tokenizer: PretrainedTokenizer, rows: int) -> dict[str, Any]:
    """Return the metadata of GGUF files for a tokenizer, whose model has an embedding of `rows` rows.

    A tokenizer that files cannot describe, because its kind has no counterpart or whose ids of texts would change, raises
    IncompatibleFileError. Files do not state a normalisation of Unicode: other texts may have other ids afterwards.
    """
    data = json.loads(tokenizer.to_json())["tokenizer"]
    model = data["model"]
    kind = model.get("type") or "BPE"
    if kind != "BPE":
        expected = "BPE of bytes, or of characters with scores"
        raise IncompatibleFileError(message("gguf_from_tokenizer", f"a tokenizer of kind {kind}", expected=expected))
    tokens, types = _tokens(tokenizer, data, rows)
    found: dict[str, Any] = {f"{_PREFIX}tokens": tokens, f"{_PREFIX}token_type": types}
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    if model.get("byte_fallback"):
        first = tokenizer.token(tokenizer.encode("a")[0]) or ""
        found |= {
            f"{_PREFIX}model": "llama",
            f"{_PREFIX}scores": _scores(tokens, merges),
            f"{_PREFIX}add_space_prefix": first.startswith((_SPACE, "<0x")),
        }
    else:
        found |= {
            f"{_PREFIX}model": "gpt2",
            f"{_PREFIX}pre": _rule_of(tokenizer, bool(model.get("ignore_merges"))),
            f"{_PREFIX}merges": [" ".join(pair) for pair in merges],
        }
    roles = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id, "unknown": tokenizer.unknown_id}
    if tokenizer.settings.get("pad_token") is not None:
        roles["padding"] = tokenizer.pad_id
    found |= {f"{_PREFIX}{role}_token_id": i for role, i in roles.items() if i is not None}
    marked = tokenizer.encode("a", add_bos=True)
    found[f"{_PREFIX}add_bos_token"] = tokenizer.bos_id is not None and marked[0] == tokenizer.bos_id
    found[f"{_PREFIX}add_eos_token"] = tokenizer.eos_id is not None and marked[-1] == tokenizer.eos_id
    _check(tokenizer, found)
    return found


def _tokens(tokenizer: PretrainedTokenizer, data: Mapping[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """Return the tokens by id and their types; rows without a token have one that no text contains."""
    if tokenizer.vocab_size > rows:
        problem = f"the tokenizer has {tokenizer.vocab_size} tokens"
        raise IncompatibleFileError(message("gguf_from_tokenizer", problem, expected=f"at most {rows}, as the model"))
    special = {row["id"]: bool(row.get("special")) for row in data.get("added_tokens") or ()}
    has_bytes = bool(data["model"].get("byte_fallback"))
    tokens, types = [], []
    for i in range(rows):
        token = tokenizer.token(i) if i < tokenizer.vocab_size else None
        tokens.append(f"[PAD{i}]" if token is None else token)
        if token is None:
            types.append(TokenType.UNUSED)
        elif has_bytes and i == tokenizer.unknown_id:
            types.append(TokenType.UNKNOWN)
        elif i in special:
            types.append(TokenType.CONTROL if special[i] else TokenType.USER_DEFINED)
        else:
            is_byte = has_bytes and len(token) == 6 and token.startswith("<0x") and token.endswith(">")
            types.append(TokenType.BYTE if is_byte else TokenType.NORMAL)
    return tokens, [int(t) for t in types]


def _scores(tokens: list[str], merges: list[list[str]]) -> list[float]:
    """Return scores in the order of merges: a token that an earlier merge makes has a higher one."""
    order: dict[str, int] = {}
    for left, right in merges:
        order.setdefault(left + right, len(order))
    return [-float(order.get(token, len(order))) for token in tokens]


def _rule_of(tokenizer: PretrainedTokenizer, ignore_merges: bool) -> str:
    """Return the name of the rule that cuts texts as a tokenizer does."""
    tokenizers = library("gguf_from_tokenizer")
    wanted = [tokenizer.pieces(text) for text in _PROBES]
    for name, rule in PRE_TOKENIZERS.items():
        if rule.ignore_merges == ignore_merges:
            data = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": pre_tokenizer_of(rule)}
            cutter = tokenizers.Tokenizer.from_str(json.dumps(data)).pre_tokenizer
            if all([p for p, _ in cutter.pre_tokenize_str(t)] == w for t, w in zip(_PROBES, wanted, strict=True)):
                return name
    problem = "no rule of GGUF files cuts texts into words as the tokenizer does"
    raise IncompatibleFileError(message("gguf_from_tokenizer", problem, expected=f"{', '.join(PRE_TOKENIZERS)}"))


def _check(tokenizer: PretrainedTokenizer, metadata: Mapping[str, Any]) -> None:
    """Raise IncompatibleFileError if a reader returns other ids, or other texts of them."""
    again = tokenizer_from_gguf(metadata)
    for text in _PROBES:
        ids, other = tokenizer.encode(text, add_bos=True), again.encode(text, add_bos=True)
        if ids != other or tokenizer.decode(ids) != again.decode(ids):
            at = next(
                (i for i, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), min(len(ids), len(other))
            )
            problem = f"the tokenizer has rules that GGUF files cannot state: {text!r} has other tokens after {at}"
            raise IncompatibleFileError(message("gguf_from_tokenizer", problem))
