"""Padding of axes by their own elements, or by a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.nn import functional
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, pulled_back

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("constant_pad_nd", keeps_format=True)
def constant_pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Any:
    return functional.pad(x, pad, "constant", value) if any(pad) else F["copy"](x)


def _add_padding(name: str, mode: str) -> None:
    """Declare padding in a mode along one to three axes, and its gradients."""

    def pad(x: Tensor, pad: Sequence[int]) -> Any:
        return functional.pad(x, pad, mode)

    def pad_backward(grad: Tensor, x: Tensor, pad: Sequence[int]) -> Any:
        return pulled_back(lambda x: functional.pad(x, pad, mode), grad, x)

    for axes in (1, 2, 3):
        aten(f"{name}{axes}d", keeps_format=True)(pad)
        aten(f"{name}{axes}d_backward", keeps_format=True)(pad_backward)


_add_padding("reflection_pad", "reflect")
_add_padding("replication_pad", "replicate")
