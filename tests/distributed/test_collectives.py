"""Collectives among processes; the cases are in programs/collectives.py."""

from __future__ import annotations

import pytest

from .conftest import PROGRAMS, Launch


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_are_those_of_numpy(launch: Launch, ranks: int) -> None:
    done = launch("-n", ranks, PROGRAMS / "collectives.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all collectives are right") == ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_devices_of_several_processes_form_groups_and_train_one_model(launch: Launch, ranks: int) -> None:
    done = launch("-n", ranks, PROGRAMS / "devices.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("devices of all processes agree") == ranks
