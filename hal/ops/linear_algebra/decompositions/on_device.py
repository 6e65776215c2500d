"""Programs of ops for devices: checks of results, which raise the errors of singular matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.ops.linear_algebra.decompositions.on_host import singular
from polyhal.hal.ops.lowering import DeviceProgram


def checked(function: Callable[..., Any], name: str, problem: str) -> DeviceProgram:
    """Return a program whose last output is an `info`. A matrix with another number than 0 raises the error of `problem`.

    `problem` contains `{}` for that number.
    """

    def refuse(info: np.ndarray) -> None:
        if info.any():
            raise singular(name, info, problem)

    def with_info(*operands: Any) -> Any:
        results = function(*operands)
        return (*results, results[-1])

    return DeviceProgram(with_info, refuse)
