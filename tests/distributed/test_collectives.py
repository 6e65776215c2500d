"""Collectives among processes, and models that they train; the cases are in programs/collectives.py and devices.py."""

from __future__ import annotations

from typing import Any

import pytest

from polyhal import distributed

from .conftest import PROGRAMS, Launch


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "scatter", "gather"])
def test_every_rank_passes_a_tensor(name: str) -> None:
    call: Any = getattr(distributed, name)
    with pytest.raises(TypeError, match=rf"\[{name}\] this rank passed a NoneType; expected a tensor on every rank"):
        call(None)


def test_collectives_equal_numpy_and_devices_of_all_processes_train_one_model(launch: Launch) -> None:
    """Three ranks include a middle one and uneven parts; tests of mailboxes cover other numbers."""
    done = launch("-n", 3, PROGRAMS / "together.py", "collectives.py", "devices.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all collectives are right") == 3
    assert done.stdout.count("devices of all processes agree") == 3
