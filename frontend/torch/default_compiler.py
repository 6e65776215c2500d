"""`torch.compile(model)` without a backend: graphs of tensors on the device are compiled by Polyhal.

PyTorch's default backend, Inductor, has code generators for its own devices only and raises `KeyError: 'polyhal'`. Graphs of
other devices remain Inductor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from polyhal.torch import private
from polyhal.torch.device import NAME


def install() -> None:
    """Route Inductor's graphs with tensors on the device to Polyhal's backend. A second call is a no-op."""
    private.before_inductor(_prepare, _compiled)


def _prepare() -> None:
    """Prepare PyTorch's compiler before it traces a program."""
    from polyhal.torch.compiler import assignments, branches, constant_numbers, once

    once.install()
    branches.install()
    constant_numbers.install()
    assignments.install()


def _compiled(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    """Compile a Dynamo graph; None if none of its tensors is on the device.

    Inductor's modes and options have no effect: they choose among its own kernels, and `polyhal tune` chooses among Polyhal's.
    """
    values = (*example_inputs, *(node.meta.get("example_value") for node in graph.graph.nodes))
    if not any(isinstance(x, torch.Tensor) and x.device.type == NAME for x in values):
        return None
    from polyhal.torch.compiler import backend

    return backend(graph, example_inputs)
