"""A sample of PyTorch's databases, replayed: `python -m tests.pytorch` replays them whole."""

from __future__ import annotations

import torch

from polyhal import Device
from tests.pytorch.database import op_database
from tests.pytorch.names import Status, all_names
from tests.pytorch.ops import replay

_EVERY = 4
"""The database has some 700 entries; its import alone takes half a minute, so that all of this is one test."""


def test_a_sample_of_all_ops_agrees_with_pytorch() -> None:
    device = Device("numpy")
    outcomes = [o for e in op_database()[::_EVERY] for o in replay(e, torch.float32, device, limit=1)]
    bad = [o for o in outcomes if not o.is_fine and o.verdict != "missing"]
    assert not bad, "\n".join(f"{o.name}({o.call}): {o.verdict}, {o.detail}" for o in bad)
    assert len({o.name for o in outcomes if o.verdict == "agrees"}) > 100


def test_names_that_are_said_to_be_there_are_there() -> None:
    """The page counts names; a name that goes away is noticed here."""
    there = {f"{n.namespace}.{n.name}" for n in all_names() if n.status is Status.THERE}
    assert {"torch.softmax", "Tensor.sum", "nn.Linear", "nn.functional.relu", "optim.AdamW"} <= there
    assert len(there) > 700
