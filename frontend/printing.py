"""The printed form of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyhal.hal.errors import message

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


def render(x: Tensor) -> str:
    """Format the elements as NumPy does, with dtype, device, and the node that created the tensor, if any."""
    array = x.numpy()
    if array.dtype.kind == "V":  # bfloat16 has no formatter of its own
        array = array.astype(np.float32)
    body = np.array2string(
        array, separator=", ", prefix="tensor(", precision=4, threshold=200, edgeitems=3, floatmode="maxprec"
    )
    notes = [f"dtype={x.dtype!r}", f"device={x.device.name!r}"]
    if x.node is not None:
        notes.append(f"grad_fn={x.node.op.name}")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    shape = f", shape={x.shape}" if x.size == 0 else ""
    return f"tensor({body}{shape}, {', '.join(notes)})"


def formatted(x: Tensor, spec: str) -> str:
    """Format the only element under `spec`; without a spec, the whole tensor. Raises TypeError for several elements."""
    if not spec:
        return render(x)
    if x.size != 1:
        problem = f"format {spec!r} is for one number, and a tensor of shape {x.shape} has {x.size}"
        raise TypeError(message("format", problem, fix="use .item(), .numpy(), or no format"))
    return format(x.item(), spec)
