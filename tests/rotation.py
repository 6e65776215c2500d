"""Spreads the parametrised cases of kernel tests over the devices, because each kernel is compiled for each device.

A case runs on one of the devices, which one depends only on the case; tests without parameters run on all. Devices that
compile slowly may have a smaller share of the cases. The
conformance kit runs in full on every device, so that this thins out combinations and not kernels.
POLYHAL_TEST_ALL=1 runs every case on every device.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def rotate(
    config: pytest.Config,
    items: list[pytest.Item],
    folder: Path,
    fixture: str,
    devices: Sequence[Any],
    ids: Sequence[str],
    shares: Sequence[int] = (),
    *,
    whole_tests: bool = False,
) -> None:
    """Deselect, of the items under `folder`, those that are the turn of another of the `devices` that `fixture` takes.

    `shares` are relative numbers of cases, one per device; equal by default. With `whole_tests`, tests without parameters of
    their own take turns, too. Items on other devices than `devices` stay.
    """
    if os.environ.get("POLYHAL_TEST_ALL") or len(devices) < 2:
        return
    turns = [place for place, share in enumerate(shares or [1] * len(devices)) for _ in range(share)]
    below = f"{folder}{os.sep}"
    kept, dropped = [], []
    for item in items:
        spec = getattr(item, "callspec", None)
        single = spec is not None and len(spec.params) < 2 and not whole_tests
        if spec is None or single or not str(item.path).startswith(below) or spec.params.get(fixture) not in devices:
            kept.append(item)
            continue
        place = devices.index(spec.params[fixture])
        case = item.nodeid.partition("[")[0] + spec.id.replace(ids[place], "", 1)
        (kept if turns[zlib.crc32(case.encode()) % len(turns)] == place else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
