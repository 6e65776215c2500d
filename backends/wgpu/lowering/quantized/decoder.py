"""Template variables of shaders/wgsl/lib/block_decoder.wgsl."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from polyhal.backends.common.codegen.block_decoder import decoder


@lru_cache
def definitions(name: str) -> dict[str, Any]:
    """Return the variables for a format."""
    return {"DECODER": asdict(decoder(name))}
