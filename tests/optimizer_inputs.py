"""Inputs of optimizer steps over more tensors than one launch holds."""

from __future__ import annotations

from typing import Any

SHAPES: list[tuple[int, ...]] = [(7,), (3, 5), (), (33, 20), (70000,)] * 6
COUNT = len(SHAPES)
ADAM = (3, 1e-2, 0.9, 0.999, 1e-8, 0.1)
FLAGS: dict[str, Any] = {"count": COUNT, "decoupled": True, "amsgrad": False, "counted": False}


def tensors(rng: Any, low: float = -1.0) -> list[Any]:
    return [rng.uniform(low, 1, s) for s in SHAPES]
