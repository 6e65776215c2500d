"""`host_call`: a Python function of elements, in the middle of a captured step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal.hal.compile.planning.host_calls import call_now
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.ops.top_level import top_level
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


@top_level
def host_call(
    function: Callable[..., Any], *inputs: Tensor, results: Sequence[tuple[Sequence[int], DType]]
) -> tuple[Tensor, ...]:
    """Return the results of a Python function of the elements of tensors, computed on the host.

    `function` receives a NumPy array for each tensor, and returns an array for each of the `results`, pairs of a shape and a
    dtype; a single array may be returned as it is. In a captured step each run calls it, between the work on the device before
    and after it. So the function must be the same object in each call, have no side effects, and return the same shapes. Its
    errors are raised by the run, before that has changed parameters, gradients or other memory of the program. Gradients do not
    flow through it. Raises ShapeError for results of other shapes.
    """
    declared = tuple((as_dtype(dtype), tuple(shape)) for shape, dtype in results)
    executor = dispatch.thread.executor
    with no_grad():
        if executor is dispatch.EAGER:
            arrays, device = dispatch.admitted(HOST_CALL, inputs, None)
            return call_now(device, function, declared, arrays)
        made: tuple[Tensor, ...] = executor.apply(HOST_CALL, inputs, (function, declared))
        return made
