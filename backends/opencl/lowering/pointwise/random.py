"""Random numbers and dropout, from Philox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Number, Tensor
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import ScalarSpec, Spec, collapse
from polyhal.hal.ops.random.philox import dropout_threshold
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_WORDS = 4
_AXES = 3
_ITEMS_PER_UNIT = 16
"""Work-items of a CPU per compute unit, so that none waits long for another."""
_MOST_STEPS = 1024
_DISTRIBUTIONS = {"random_bits": 0, "uniform": 1, "normal": 2}


def _lowering(op: str) -> Callable[..., Launch | Declined]:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        if not all(isinstance(s, ScalarSpec) for s in inputs):
            return Declined("seed or offset is a tensor")
        (out,) = outputs
        definitions: dict[str, str | int | bool] = {
            "OUT_DTYPE": out.dtype.name, "DISTRIBUTION": _DISTRIBUTIONS[op],
            "ALIGNED": out.aligned and not runtime.features.cpu,
        }  # fmt: skip
        parameters: list[Parameter] = [Tensor(2), Constant(out.size, "ulong"), Number(0, "ulong"), Number(1, "ulong")]
        if op != "normal" and (width := _lanes(runtime)):
            return _launch_lanes(
                runtime, op, "pointwise/cpu_random", definitions | {"WIDTH": width}, parameters, out.size
            )
        group = runtime.features.group_size
        return runtime.launch(op, "pointwise/random", definitions, parameters, (ceil_div(out.size, _WORDS),), (group,))

    return lower


def _dropout(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, seed, offset = inputs
    if not isinstance(x, Spec) or not isinstance(seed, ScalarSpec) or not isinstance(offset, ScalarSpec):
        return Declined("x is a number, or seed or offset a tensor")
    lengths, (steps,) = collapse(x.shape, (x.strides,))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} axes cannot be merged; the kernel takes {_AXES}")
    fill = _AXES - len(lengths)
    lengths, steps = (1,) * fill + lengths, (0,) * fill + steps
    p = params["p"]
    real = real_type(x.dtype)
    definitions: dict[str, str | int | bool] = {"DTYPE": x.dtype.name, "REAL": real}
    parameters: list[Parameter] = [
        Tensor(0),
        Tensor(3),
        Constant(x.size, "ulong"),
        Number(1, "ulong"),
        Number(2, "ulong"),
        Constant(dropout_threshold(p), "uint"),
        Constant(1 / (1 - p), "double" if real == "double" else "float"),
    ]
    if x.is_contiguous and (width := _lanes(runtime)):
        definitions |= {"MASK": "long" if real == "double" else "int", "WIDTH": width}
        return _launch_lanes(runtime, "dropout", "pointwise/cpu_dropout", definitions, parameters, x.size)
    aligned = x.aligned and outputs[0].aligned and not runtime.features.cpu
    definitions |= {"STRIDED": not x.is_contiguous, "ALIGNED": aligned}
    parameters += [*(Constant(n, "ulong") for n in lengths[1:]), *(Constant(n, "long") for n in steps)]
    group = runtime.features.group_size
    return runtime.launch(
        "dropout", "pointwise/dropout", definitions, parameters, (ceil_div(x.size, _WORDS),), (group,)
    )


def _lanes(runtime: Runtime) -> int:
    """How many blocks a CPU makes at once; 0 on other devices, whose work-items make one each."""
    features = runtime.features
    return features.vector_width if features.cpu and features.vector_width in (4, 8, 16) else 0


def _launch_lanes(
    runtime: Runtime, op: str, kernel: str, definitions: Definitions, parameters: Sequence[Parameter], size: int
) -> Launch:
    """The launch of a kernel whose work-items make some vectors of blocks each."""
    steps = ceil_div(size, _WORDS * _lanes(runtime))
    each = min(_MOST_STEPS, ceil_div(steps, _ITEMS_PER_UNIT * runtime.features.compute_units))
    return runtime.launch(
        op, kernel, definitions, [*parameters, Constant(each, "uint")], (ceil_div(steps, each),), (1,)
    )  # fmt: skip


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    **{op: _lowering(op) for op in _DISTRIBUTIONS},
    "dropout": _dropout,
}
