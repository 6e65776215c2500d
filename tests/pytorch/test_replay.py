"""A sample of PyTorch's databases, replayed: `python -m tests.pytorch` replays them whole."""

from __future__ import annotations

import torch

from polyhal import Device
from tests.pytorch.database import op_database
from tests.pytorch.ops import replay

_EVERY = 4
"""The database has some 700 entries; its import alone takes half a minute, so that all of this is one test."""


def test_a_sample_of_all_ops_agrees_with_pytorch() -> None:
    device = Device("numpy")
    outcomes = [o for e in op_database()[::_EVERY] for o in replay(e, torch.float32, device, limit=1)]
    bad = [o for o in outcomes if not o.is_fine and o.verdict != "missing"]
    assert not bad, "\n".join(f"{o.name}({o.call}): {o.verdict}, {o.detail}" for o in bad)
    assert len({o.name for o in outcomes if o.verdict == "agrees"}) > 100
