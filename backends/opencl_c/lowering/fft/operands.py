"""Memory of complex numbers as kernel arguments."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.fft import Plane, Planes


def memory(name: str, planes: Planes) -> Arguments:
    """Return the arguments `name_re` and `name_im`, as far as these parts are in memory."""
    parts = (("re", planes.re), ("im", planes.im))
    return {f"{name}_{part}": _bound(plane) for part, plane in parts if plane is not None}


def _bound(plane: Plane) -> Tensor | Workspace:
    if not plane.start:
        return plane.memory
    return Tensor(plane.memory.index, plane.start)
