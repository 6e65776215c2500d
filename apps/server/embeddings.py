"""Embeddings of texts."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from polyhal.server.errors import RequestError
from polyhal.server.fields import Fields
from polyhal.server.interfaces import ServedModel
from polyhal.server.options import IGNORED, check_model
from polyhal.server.prompts import check_length

_MOST_TEXTS = 256


def embedding_texts(body: dict[str, Any], model: ServedModel, limit: int) -> tuple[list[str], int, bool]:
    """Return the texts of a request, their number of tokens, and whether vectors are sent as base64."""
    fields = Fields(body, ("model", "input", "encoding_format", "dimensions"), IGNORED)
    check_model(fields, model)
    encoding = fields.body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        fields.refuse("encoding_format", '"float" or "base64"')
    if "dimensions" in fields:
        fields.refuse("dimensions", "no dimensions: vectors have the model's size", "remove it", "unsupported")
    given = fields.body.get("input")
    texts: Any = [given] if isinstance(given, str) else given
    is_list = isinstance(texts, list) and 1 <= len(texts) <= _MOST_TEXTS
    if not is_list or not all(isinstance(text, str) for text in texts):
        fields.refuse("input", f"a string, or a list of 1 to {_MOST_TEXTS} strings")
    tokens = 0
    for text in texts:
        ids = model.ids(text)
        check_length(ids, limit, "input")
        tokens += len(ids)
    return texts, tokens, encoding == "base64"


def embedding_reply(name: str, vectors: np.ndarray, tokens: int, as_base64: bool) -> dict[str, Any]:
    """Return the body of a reply."""
    rows = np.asarray(vectors, "<f4")
    if not np.isfinite(rows).all():
        raise RequestError("the model's vectors are not finite", status=500, code="model_error")
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.tobytes()).decode() if as_base64 else row.tolist(),
        }
        for i, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}
