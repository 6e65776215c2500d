"""Checks of SentencePiece's precompiled maps of characters, which `tokenizer.json` contains in base64.

A map is the number of bytes of a trie (4 bytes), the trie as 32-bit units of darts-clone, and replacements that end with 0. The
library follows offsets in the trie without checks and aborts the process where they lead outside.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np

_LEAF = np.uint32(1 << 31)


def problem_of(encoded: object) -> str:
    """Return the defect of a map in base64; empty if there is none."""
    if not isinstance(encoded, str):
        return f"the character map is a {type(encoded).__name__}"
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return "the character map is not base64"
    size = int.from_bytes(data[:4], "little")
    if len(data) < 8 or size % 4 or not 4 <= size <= len(data) - 4:
        return f"the character map has a trie of {size} bytes in {len(data)} bytes"
    texts = data[4 + size :]
    try:
        texts.decode()
    except UnicodeDecodeError:
        return "the replacements of the character map are not UTF-8"
    return _problem_of_trie(np.frombuffer(data, "<u4", size // 4, 4), np.frombuffer(texts, np.uint8))


def _problem_of_trie(units: np.ndarray, texts: np.ndarray) -> str:
    """Check that every node's children and every replacement are inside of the map."""
    places = np.arange(len(units), dtype=np.uint32)
    leaves = units >= _LEAF
    shift = (units & np.uint32(1 << 9)) >> np.uint32(6)
    children = places ^ ((units >> np.uint32(10)) << shift)
    if np.any((children | np.uint32(255))[~leaves] >= max(len(units), 256)) or len(units) < 256:
        return f"the character map leads outside of its trie of {len(units)} units"
    starts = units[leaves] & ~_LEAF
    if np.any(starts > len(texts)):
        return f"the character map leads outside of its {len(texts)} bytes of replacements"
    inside = starts[starts < len(texts)]
    return "the character map leads into a character" if np.any((texts[inside] & 0xC0) == 0x80) else ""
