"""Random numbers and dropout from Philox4x32-10, a counter-based generator: element i depends only on seed, counter and i.

GPUs compute one block of four words per work-item. CPUs compute a vector of blocks at a time, in separate kernels,
except for dropout of strided tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Scalar, Table, Tensor
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import ScalarSpec, Spec, collapse
from polyhal.hal.ops.random.normal_table import COEFFICIENTS
from polyhal.hal.ops.random.philox import dropout_threshold
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]

_WORDS = 4
"""32-bit words of a Philox block; each makes one element."""
_AXES = 3
"""Axes of a strided operand that pointwise/dropout.cl walks."""
_ITEMS_PER_UNIT = 16
"""Work-items per compute unit of a CPU: enough to balance threads of different speed."""
_MAX_STEPS = 1024
"""Maximum vectors of blocks per work-item of a CPU, so that large tensors occupy many work-items."""
_DISTRIBUTIONS = {"random_bits": 0, "uniform": 1, "normal": 2}


def _lowering(op: str) -> Callable[..., Launch | Declined]:
    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        if not all(isinstance(s, ScalarSpec) for s in inputs):
            return Declined("seed or offset is a tensor")
        (out,) = outputs
        definitions: dict[str, str | int | bool] = {
            "OUT_DTYPE": out.dtype.name,
            "DISTRIBUTION": _DISTRIBUTIONS[op],
            "ALIGNED": out.aligned and not runtime.features.cpu,
        }
        args: Arguments = {"out": Tensor(2), "size": out.size, "seed": Scalar(0), "counter": Scalar(1)}
        if op == "normal":
            args = {**args, "table": Table(COEFFICIENTS)}
        if width := _blocks_per_vector(runtime):
            return _launch_cpu(runtime, "pointwise/cpu_random", definitions | {"WIDTH": width}, args, out.size)
        group = runtime.features.group_size
        return runtime.launch("pointwise/random", definitions, args, (ceil_div(out.size, _WORDS),), (group,))

    return lower


def _dropout(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    x, seed, counter = inputs
    if not isinstance(x, Spec) or not isinstance(seed, ScalarSpec) or not isinstance(counter, ScalarSpec):
        return Declined("x is a number, or seed or offset a tensor")
    lengths, (strides,) = collapse(x.shape, (x.strides,))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} axes cannot be merged; the kernel supports {_AXES}")
    p = params["p"]
    real = real_type(x.dtype)
    definitions: dict[str, str | int | bool] = {"DTYPE": x.dtype.name, "REAL": real}
    args: Arguments = {
        "x": Tensor(0),
        "out": Tensor(3),
        "size": x.size,
        "seed": Scalar(1),
        "counter": Scalar(2),
        "threshold": dropout_threshold(p),
        "scale": 1 / (1 - p),
    }
    if x.is_contiguous and (width := _blocks_per_vector(runtime)):
        definitions |= {"MASK": "long" if real == "double" else "int", "WIDTH": width}
        return _launch_cpu(runtime, "pointwise/cpu_dropout", definitions, args, x.size)
    aligned = x.aligned and outputs[0].aligned and not runtime.features.cpu
    definitions |= {"STRIDED": not x.is_contiguous, "ALIGNED": aligned}
    fill = _AXES - len(lengths)
    _, length1, length2 = (1,) * fill + lengths
    stride0, stride1, stride2 = (0,) * fill + strides
    args = {
        **args,
        "length1": length1,
        "length2": length2,
        "x_stride0": stride0,
        "x_stride1": stride1,
        "x_stride2": stride2,
    }
    group = runtime.features.group_size
    return runtime.launch("pointwise/dropout", definitions, args, (ceil_div(x.size, _WORDS),), (group,))


def _blocks_per_vector(runtime: Runtime) -> int:
    """Return the Philox blocks that a CPU computes at a time, one per vector lane; 0 if only the kernels for GPUs apply."""
    features = runtime.features
    return features.vector_width if features.cpu and features.vector_width in (4, 8, 16) else 0


def _launch_cpu(runtime: Runtime, kernel: str, definitions: Definitions, args: Arguments, size: int) -> Launch:
    """Build a launch whose work-items compute several vectors of blocks each."""
    steps = ceil_div(size, _WORDS * _blocks_per_vector(runtime))
    each = min(_MAX_STEPS, ceil_div(steps, _ITEMS_PER_UNIT * runtime.features.compute_units))
    return runtime.launch(kernel, definitions, {**args, "each": each}, (ceil_div(steps, each),), (1,))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    **{op: _lowering(op) for op in _DISTRIBUTIONS},
    "dropout": _dropout,
}
