"""Workloads of `polyhal prebuild`: programs that build the kernels of common ones."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points

import polyhal
from polyhal.hal.core.kernels.call_log import KernelCallLog
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError

WORKLOADS_GROUP = "polyhal.workloads"
"""Entry-point group of packages with workloads: a dictionary of functions that take a device, by name."""


def basics(device: Device) -> None:
    """Create, copy and read tensors."""
    for dtype in ("float32", "int32", "bool"):
        x = polyhal.zeros((8, 8), dtype=dtype, device=device)
        _ = x.T.contiguous().numpy(), x[:, 1:].numpy()
    x = polyhal.randn((64, 64), device=device)
    _ = ((x + x) * 2.0 - x / 3.0).sum().numpy(), x.mean(axis=0).numpy(), x.max(axis=1).numpy(), x.argmax(axis=1).numpy()


def used(device: Device) -> None:
    """Run every call in the kernel-call log of this device, under any driver. Calls that fail now are skipped."""
    for call in KernelCallLog(device.info).calls():
        try:
            call.run(device)
        except (PolyhalError, KeyError, TypeError, ValueError) as error:  # logged by another version of Polyhal
            warnings.warn(f"{call.op} is skipped: {error}", stacklevel=1)


@functools.cache
def all_workloads() -> dict[str, Callable[[Device], None]]:
    """Return the workloads by name: created tensors, models that packages offer, and logged calls."""
    found = {name: workload for point in entry_points(group=WORKLOADS_GROUP) for name, workload in point.load().items()}
    return {"basics": basics, **found, "used": used}


def chosen(names: str) -> list[str]:
    """Return the workloads of a comma-separated list. Raises ValueError for an unknown one, and for none."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in all_workloads()]
    if unknown or not wanted:
        problem = f"unknown workload {', '.join(map(repr, unknown))}" if unknown else "no workload is given"
        raise ValueError(f"{problem}; expected any of {', '.join(all_workloads())}")
    return wanted
