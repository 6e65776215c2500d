"""Collectives among processes, and models that they train together; the cases are in programs/collectives.py and devices.py."""

from __future__ import annotations

from .conftest import PROGRAMS, Launch


def test_collectives_are_those_of_numpy_and_devices_of_all_processes_train_one_model(launch: Launch) -> None:
    """Three ranks have middle ones and uneven parts; any other number is tested over mailboxes."""
    done = launch("-n", 3, PROGRAMS / "together.py", "collectives.py", "devices.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all collectives are right") == 3
    assert done.stdout.count("devices of all processes agree") == 3
