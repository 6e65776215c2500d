"""Kernels of a step, announced to the processes that build kernels ahead before the first one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.hal.core.kernels.call_log import KernelCall
from polyhal.hal.core.kernels.library import BuildsAhead, HasKernels
from polyhal.hal.core.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph, Node
    from polyhal.hal.core.kernels.background_build import BackgroundBuilder
    from polyhal.hal.device import Device


def announce(graph: Graph, nodes: Sequence[Node]) -> None:
    """Send nodes' kernels to the processes that build ahead. No-op without such processes: caches have the kernels."""
    for device in {n.device: None for n in nodes}:
        ahead = _builder(device)
        if ahead is not None and ahead.is_running:
            ahead.announce([_call(graph, n) for n in nodes if n.device is device])


def _builder(device: Device) -> BackgroundBuilder | None:
    kernels = device.backend.kernels if isinstance(device.backend, HasKernels) else None
    return kernels.background if isinstance(kernels, BuildsAhead) else None


def _call(graph: Graph, node: Node) -> KernelCall:
    """Return the call of the backend that a node's kernel is requested by."""
    followed = node.device.backend.capabilities.settings
    with settings.restored(node.place.settings):
        params = {**node.bound, **settings.among(node.op.settings, followed)}
    return KernelCall(node.op.name, tuple(graph.spec_of(x) for x in node.inputs), graph.output_specs(node), params)
