"""Cross entropy by rows and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.launch import Constant, Tensor
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering import rows
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]


def _number(value: float, arranged: rows.Rows) -> Constant:
    return Constant(value, "double" if arranged.definitions["REAL"] == "double" else "float")


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    logits, target = inputs
    if not isinstance(logits, Spec) or not isinstance(target, Spec):
        return Declined("an operand is a number")
    arranged = rows.arrange(runtime, (logits,), 1)
    if isinstance(arranged, Declined):
        return arranged
    smoothing = params["label_smoothing"]
    definitions = arranged.definitions | {"INDEX_DTYPE": target.dtype.name, "SMOOTHED": smoothing != 0}
    parameters: list[Parameter] = [
        *(Tensor(i) for i in range(4)),
        Constant(target.strides[0], "long"),
        Constant(params["ignore_index"], "long"),
        _number(smoothing, arranged),
        *arranged.parameters,
    ]
    return runtime.launch("cross_entropy", "cross_entropy", definitions, parameters, arranged.items, arranged.group)


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    g, logits, target, lse = inputs
    (dx,) = outputs
    if not all(isinstance(s, Spec) for s in inputs):
        return Declined("an operand is a number")
    assert isinstance(g, Spec)
    assert isinstance(logits, Spec)
    assert isinstance(target, Spec)
    assert isinstance(lse, Spec)
    if (
        lse.dtype.name != ("float64" if rows.real_type(logits.dtype) == "double" else "float32")
        or not g.dtype.is_floating_point
    ):
        return Declined(f"g is {g.dtype.name} and lse {lse.dtype.name}")
    arranged = rows.arrange(runtime, (logits, dx), 1)
    if isinstance(arranged, Declined):
        return arranged
    definitions = arranged.definitions | {"INDEX_DTYPE": target.dtype.name, "GRADIENT_DTYPE": g.dtype.name}
    steps = [Constant(s.strides[0], "long") for s in (g, target, lse)]
    parameters: list[Parameter] = [
        *(Tensor(i) for i in range(5)),
        *steps,
        Constant(params["ignore_index"], "long"),
        _number(params["label_smoothing"], arranged),
        *arranged.parameters,
    ]
    return runtime.launch(
        "cross_entropy_grad", "cross_entropy_grad", definitions, parameters, arranged.items, arranged.group
    )


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "cross_entropy_rows": _forward,
    "cross_entropy_rows_grad": _backward,
}
