"""Automatic mixed precision: products run in a half dtype, sensitive ops in float32, all others in the dtype of their inputs.

Each op declares which of the three it is (`OpDef.autocast`).
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any

from polyhal.conversion import names_dtype
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, bfloat16, float16, float32
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.ops.traits import Autocast

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_CASTABLE = frozenset({float16, bfloat16, float32})
"""Dtypes that are cast. float64 stays: the user chose its precision."""
_CAST = OPS["cast"]


class _AutocastExecutor(dispatch.ForwardingExecutor):
    """Casts the inputs of ops and forwards the calls."""

    __slots__ = ("dtype",)

    def __init__(self, base: dispatch.Executor, dtype: DType) -> None:
        super().__init__(base)
        self.dtype = dtype

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Device | None = None) -> Any:
        if op.autocast is not Autocast.INHERIT:
            dtype = self.dtype if op.autocast is Autocast.HALF else float32
            inputs = tuple(self._cast(x, dtype) for x in inputs)
        return self.base.apply(op, inputs, params, device)

    def _cast(self, x: Tensor, target: DType) -> Any:
        dtype = getattr(x, "dtype", None)
        if dtype is target or dtype not in _CASTABLE:
            return x
        return self.base.apply(_CAST, (x,), (target,))


@top_level
class autocast(contextlib.ContextDecorator):  # noqa: N801 - as PyTorch spells it
    """Run products in `dtype` inside the block: matmul, linear, convolution and attention, whose sums stay float32.

    Norms, softmax, sums and steep functions run in float32. Cross entropy takes half-precision logits and computes and
    returns losses in float32. Parameters keep their dtype, and so do their gradients. `autocast(enabled=False)` disables a
    surrounding block. Leave the block before `backward`, which runs in the dtypes of the forward pass either way. With
    float16, gradients need a `GradScaler`; bfloat16 has the range of float32. Raises AutocastError for any other dtype.

    A device or its name may come first, as in `torch.autocast("cuda", torch.float16)`: a no-op, because the block applies
    to the ops of every device. `cache_enabled` is a no-op, too: casts are not cached. An `autocast` also decorates
    functions.
    """

    def __init__(
        self,
        device_type: Device | DType | str | None = None,
        dtype: DType | str | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        kind: Any = device_type if dtype is None and not _names_device(device_type) else dtype
        self._dtype = as_dtype(bfloat16 if kind is None else kind)
        if self._dtype not in (float16, bfloat16):
            raise AutocastError(message("autocast", f"got {self._dtype.name}", expected="float16 or bfloat16"))
        self._enabled = enabled
        self._outer: list[dispatch.Executor] = []

    def __enter__(self) -> autocast:
        outer = dispatch.thread.executor
        self._outer.append(outer)
        base = outer.base if isinstance(outer, _AutocastExecutor) else outer
        dispatch.thread.executor = _AutocastExecutor(base, self._dtype) if self._enabled else base
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        dispatch.thread.executor = self._outer.pop()


def _names_device(value: Any) -> bool:
    """Return whether a first argument names a device rather than a dtype."""
    from polyhal.hal.system.discovery.registry import registry

    return isinstance(value, Device) or (isinstance(value, str) and not names_dtype(value) and registry().knows(value))


def is_autocast_enabled() -> bool:
    """Return whether the calling thread is inside an enabled `autocast` block."""
    return isinstance(dispatch.thread.executor, _AutocastExecutor)


def autocast_dtype() -> DType | None:
    """Return the half dtype of the `autocast` block around the calling thread; None outside."""
    executor = dispatch.thread.executor
    return executor.dtype if isinstance(executor, _AutocastExecutor) else None


class AutocastError(PolyhalError, ValueError):
    """Autocast to a dtype other than float16 and bfloat16."""
