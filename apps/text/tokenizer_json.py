"""Checks of a `tokenizer.json` before the library reads it.

For some data the library aborts the process, or allocates memory without limit. The rules were found by trial; all other
damage is reported by the library itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polyhal.text.character_map import problem_of

MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
_MOST_TOKENS = 1 << 23
_MOST_STEPS = 64
_MOST_GROWTH = 1 << 10
"""Maximum characters that the steps of a normalizer or decoder may make of one."""
_LONGEST_TEXT = 1 << 12
"""Maximum characters of a text that a step inserts."""
_TYPE = "type"


def problem(data: object) -> str:
    """Describe why the library must not read a `tokenizer.json`; empty if it may."""
    if not isinstance(data, Mapping) or not isinstance(data.get("model"), Mapping):
        return "the model is missing"
    model = data["model"]
    kind = _kind(model)
    if kind not in MODELS:
        return f"the model is {kind!r}; expected one of {', '.join(MODELS)}"
    found = _vocabulary(kind, model) or _prefixes(kind, model) or _added(data, len(model["vocab"]))
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        found = found or _steps(name, data.get(name))
    return found


def _kind(model: Mapping[str, Any]) -> Any:
    """Return the type of a model; old files omit it."""
    if _TYPE in model:
        return model[_TYPE]
    if "merges" in model:
        return "BPE"
    return "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"


def _vocabulary(kind: str, model: Mapping[str, Any]) -> str:
    words: Any = model.get("vocab")
    if not isinstance(words, list | dict) or isinstance(words, list) != (kind == "Unigram"):
        return "the vocabulary is missing"
    if len(words) > _MOST_TOKENS:
        return f"the vocabulary has {len(words)} tokens; expected at most {_MOST_TOKENS}"
    if isinstance(words, list):
        sound = all(isinstance(w, list) and len(w) == 2 and isinstance(w[0], str) for w in words)
        return "" if sound and words else "the vocabulary is not a list of texts and scores"
    ids = list(words.values())
    if not all(type(i) is int for i in ids):
        return "a token id is not a number"
    if not words or len(set(ids)) != len(words):
        return "the vocabulary is empty" if not words else "several tokens have the same id"
    return _range(min(ids), max(ids), len(words))


def _range(lowest: int, highest: int, count: int) -> str:
    limit = 4 * count + 4096
    if lowest < 0 or highest >= limit:  # ids may have gaps, for which tables have entries
        return f"token id {lowest if lowest < 0 else highest} of {count} tokens; expected 0 to {limit - 1}"
    return ""


def _prefixes(kind: str, model: Mapping[str, Any]) -> str:
    """The library cuts the prefix from the second part of a merge, as bytes, without a check."""
    prefix = model.get("continuing_subword_prefix")
    merges = model.get("merges")
    if kind != "BPE":
        return ""
    if not isinstance(merges, list):
        return "the merges are missing"
    if prefix:
        for merge in merges:
            parts = merge.split(" ") if isinstance(merge, str) else merge
            sound = isinstance(parts, list) and len(parts) == 2 and isinstance(parts[1], str)
            if not sound or not parts[1].startswith(str(prefix)):
                return f"the merge {merge!r} does not have the prefix {prefix!r} of continued words"
    return ""


def _added(data: Mapping[str, Any], count: int) -> str:
    added = data.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(x, Mapping) and type(x.get("id")) is int for x in added):
        return "the added tokens are not a list of tokens with ids"
    ids = [x["id"] for x in added] or [0]
    return _range(min(ids), max(ids), count + len(added))


def _steps(name: str, step: object) -> str:
    """Check the steps of a normalizer, pre-tokenizer or decoder: their number, and how far they lengthen a text."""
    growth = 1
    for number, one in enumerate(_flat(step)):
        kind = one.get(_TYPE)
        if number >= _MOST_STEPS:
            return f"the {name} has more than {_MOST_STEPS} steps"
        if kind == "Precompiled" and (found := problem_of(one.get("precompiled_charsmap"))):
            return found
        if kind == "FixedLength" and not (type(one.get("length")) is int and one["length"] > 0):
            return f"the {name} cuts pieces of length {one.get('length')!r}"
        texts = [
            str(one[k]) for k in ("content", "prepend", "replacement", "prefix", "suffix") if one.get(k) is not None
        ]
        if any(len(text) > _LONGEST_TEXT for text in texts):
            return f"the {name} inserts texts of more than {_LONGEST_TEXT} characters"
        if kind == "Replace":
            growth *= _growth(one)
        if growth > _MOST_GROWTH:
            return f"the {name} lengthens texts more than {_MOST_GROWTH} times"
    return ""


def _growth(step: Mapping[str, Any]) -> int:
    """Return how many characters a replacement can make of one."""
    pattern, content = step.get("pattern"), str(step.get("content", ""))
    plain = pattern.get("String") if isinstance(pattern, Mapping) else None
    if isinstance(plain, str) and plain:
        return max(1, -(-len(content) // len(plain)))
    return 1 + len(content)  # a regular expression may match the empty text


def _flat(step: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of nested sequences; the library limits their depth."""
    if not isinstance(step, Mapping) or depth > _MOST_STEPS:
        return
    yield step
    for name in ("normalizers", "pretokenizers", "decoders"):
        for part in step.get(name) or ():
            yield from _flat(part, depth + 1)
