"""SciPy's `linear_sum_assignment` in compiled graphs, with which the losses of DETR and its successors match boxes.

PyTorch's compiler ends a graph at functions of other libraries. This one becomes an op, which a program computes on the
host between two parts of its work on the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from polyhal.hal.dtypes import int64
from polyhal.host_calls import host_call
from polyhal.tensor import Tensor
from polyhal.torch.device import NAME
from polyhal.torch.registration import library_op

_OP = f"{NAME}::linear_sum_assignment"
_COSTS = (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64)
"""Dtypes of costs that PyTorch converts to NumPy's and SciPy accepts."""
_LIBRARY: list[Any] = []
"""The library of the op, once it is defined."""

Solve = Callable[..., tuple[np.ndarray, np.ndarray]]


def install() -> None:
    """Define the op if the program has imported SciPy's function. A second call is a no-op."""
    solve: Solve | None = getattr(sys.modules.get("scipy.optimize"), "linear_sum_assignment", None)
    if solve is not None and not _LIBRARY:
        _define(solve)


def _define(solve: Solve) -> None:
    create: Any = torch.library.Library
    library = create(NAME, "FRAGMENT")
    _LIBRARY.append(library)
    library.define("linear_sum_assignment(Tensor cost, bool maximize) -> (Tensor, Tensor)")

    def on_cpu(cost: torch.Tensor, maximize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = solve(cost.numpy(), maximize)
        return torch.from_numpy(rows), torch.from_numpy(columns)

    def traced(cost: torch.Tensor, maximize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        count = min(cost.shape)
        return cost.new_empty(count, dtype=torch.int64), cost.new_empty(count, dtype=torch.int64)

    library.impl("linear_sum_assignment", on_cpu, "CPU")
    torch.library.register_fake(_OP, traced, lib=library)
    smallest, largest = partial(solve), partial(solve, maximize=True)

    @library_op(_OP)
    def in_program(cost: Tensor, maximize: bool) -> tuple[Tensor, ...]:
        results = [((min(cost.shape),), int64)] * 2
        return host_call(largest if maximize else smallest, cost, results=results)

    op: Any = getattr(torch.ops, NAME).linear_sum_assignment

    def linear_sum_assignment(cost_matrix: Any, maximize: bool = False) -> Any:
        cost = torch.as_tensor(cost_matrix)
        if cost.ndim != 2 or cost.dtype not in _COSTS or cost.device.type != "cpu" or cost.requires_grad:
            raise TypeError("SciPy raises the error after the graph")
        rows, columns = op(cost, maximize)
        return rows.numpy(), columns.numpy()

    torch.compiler.substitute_in_graph(solve, skip_signature_check=True)(linear_sum_assignment)
