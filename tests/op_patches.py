"""Changing the declaration of an op for the length of a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyhal.hal.ops.lowering import Strategy
from polyhal.hal.ops.opdef import OpDef


def patch_lowering(monkeypatch: pytest.MonkeyPatch, op: OpDef, *lowering: Strategy) -> None:
    """Give `op` other lowering strategies until the test ends."""
    changed = replace(op, lowering=lowering)
    for name in ("lowering", "view", "regions", "decompose"):
        monkeypatch.setattr(op, name, getattr(changed, name))
