"""The Core ATen opset: the overloads that PyTorch tags as `core`, and how each runs on the device."""

from __future__ import annotations

import torch

from polyhal.torch import private

KERNEL, PARTS, DECOMPOSED, CPU = "kernel", "parts", "decomposed", "cpu"
"""A kernel of the device; a kernel of PyTorch's for all devices, which calls others; a decomposition; the CPU."""


def core_overloads() -> list[torch._ops.OpOverload]:
    """Return all overloads with the tag, by name."""
    found = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        name, _, which = full.removeprefix("aten::").partition(".")
        op = (
            getattr(getattr(torch.ops.aten, name, None), which or "default", None)
            if full.startswith("aten::")
            else None
        )
        if op is not None and torch.Tag.core in op.tags:
            found.append(op)
    return found


def core_opset() -> dict[str, str]:
    """Return how each overload of the opset runs."""
    return {str(op).removeprefix("aten."): _place(op) for op in core_overloads()}


def _place(op: torch._ops.OpOverload) -> str:
    name = op.name()
    if private.has_kernel(name, "PrivateUse1"):
        return KERNEL
    if any(private.has_kernel(name, key) for key in ("CompositeExplicitAutograd", "CompositeImplicitAutograd")):
        return PARTS
    return DECOMPOSED if op in private.decompositions() else CPU
