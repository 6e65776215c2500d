"""Attention on CPUs, where an invocation is a lane of a vector unit.

Kernels: shaders/wgsl/attention/cpu.wgsl and cpu_grad.wgsl.
"""

from __future__ import annotations

from polyhal.backends.wgpu.lowering.attention.arguments import Call, Strategy

_GROUP = 8
"""Invocations of a workgroup: the lanes of one vector unit of common processors."""
_FORWARD_ROWS, _BACKWARD_ROWS = 4, 2
"""Maximum rows per invocation; more would take seconds to compile."""
_MAX_VECTORS = 128
"""Maximum vectors of features per invocation that stay in the first-level cache."""


def forward(call: Call) -> Strategy:
    """Choose the rows per invocation of the forward kernel."""
    return _choose(call, _FORWARD_ROWS)


def backward(call: Call) -> Strategy:
    """Choose the rows per invocation of the gradient kernels."""
    return _choose(call, _BACKWARD_ROWS)


def _choose(call: Call, max_rows: int) -> Strategy:
    rows = max(1, min(max_rows, _MAX_VECTORS // (call.quads + call.value_quads)))
    return Strategy("cpu", {"R": rows, "GROUP": _GROUP}, rows * _GROUP)
