"""Cross entropy by rows, its gradient, and the mean of row losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.geometry import power_of_two_at_least
from polyhal.backends.common.launching.launch import Constant, Tensor
from polyhal.backends.common.problems import cross_entropy
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.pointwise.elementwise import division_options
from polyhal.backends.opencl.lowering.support import rows
from polyhal.backends.opencl.lowering.support.group_reduce import exchange
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch


def _number(value: float, arranged: rows.Rows) -> Constant:
    return Constant(value, "double" if arranged.definitions["REAL"] == "double" else "float")


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = cross_entropy.forward(inputs)
    if isinstance(found, Declined):
        return found
    logits, target = found
    arranged = rows.arrange(runtime, (logits,), 1, held=1)
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
    return runtime.launch(
        "cross_entropy", "rowwise/cross_entropy", definitions, parameters, arranged.items, arranged.group
    )


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = cross_entropy.backward(inputs)
    if isinstance(found, Declined):
        return found
    g, logits, target, lse = found
    classes, columns = logits.shape[1], outputs[0].shape[1]
    arranged = rows.arrange(runtime, (logits, outputs[0]._replace(shape=logits.shape)), 1)
    if isinstance(arranged, Declined):
        return arranged
    definitions = arranged.definitions | {
        "INDEX_DTYPE": target.dtype.name, "GRADIENT_DTYPE": g.dtype.name, "BESIDE": columns - classes
    }  # fmt: skip
    steps = [Constant(s.strides[0], "long") for s in (g, target, lse)]
    parameters: list[Parameter] = [
        *(Tensor(i) for i in range(5)),
        *steps,
        Constant(params["ignore_index"], "long"),
        _number(params["label_smoothing"], arranged),
        *arranged.parameters,
    ]
    return runtime.launch(
        "cross_entropy_grad", "rowwise/cross_entropy_grad", definitions, parameters, arranged.items, arranged.group
    )


_MOST_ROWS = 1 << 16
"""Above, more than one group should add them up."""
_MOST_CLASSES = 64
"""Above, the work-items that share a row should be several."""
_LARGEST_GROUP = 1024
_LEAST_GROUP = 32


def _mean(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Launch | Declined:
    found = cross_entropy.forward(inputs)
    if isinstance(found, Declined):
        return found
    each, target = found
    if each.shape[0] > _MOST_ROWS:
        return Declined(f"{each.shape[0]} rows; one group adds up {_MOST_ROWS}")
    return _in_one_group(runtime, "mean_loss", each, target, (each.strides[0],), params)


def _mean_with_slope(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = cross_entropy.forward(inputs)
    if isinstance(found, Declined):
        return found
    logits, target = found
    (count, classes), widest = logits.shape, _LARGEST_GROUP
    if runtime.features.cpu or count > widest or classes > _MOST_CLASSES:
        return Declined(f"logits {logits.shape}; one group of a GPU takes up to {widest} rows of {_MOST_CLASSES}")
    smoothing = Constant(params["label_smoothing"], "double" if logits.dtype.itemsize == 8 else "float")
    return _in_one_group(
        runtime, "mean_cross_entropy", logits, target, logits.strides, params, [Constant(classes, "uint")], [smoothing]
    )


def _in_one_group(
    runtime: Runtime,
    name: str,
    x: Spec,
    target: Spec,
    strides: tuple[int, ...],
    params: Mapping[str, Any],
    lengths: Sequence[Parameter] = (),
    more: Sequence[Parameter] = (),
) -> Launch:
    """A launch of one group, each of whose work-items takes rows of `x` with their classes."""
    real = rows.real_type(x.dtype)
    most = min(runtime.features.max_group_size, _LARGEST_GROUP)
    group = 1 if runtime.features.cpu else min(most, max(_LEAST_GROUP, power_of_two_at_least(x.shape[0])))
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "INDEX_DTYPE": target.dtype.name, "REAL": real, "GROUP": group,
        "EXCHANGE": exchange(runtime, 8 if real == "double" else 4, group, group),
    }  # fmt: skip
    parameters: list[Parameter] = [
        *(Tensor(i) for i in range(4)), Constant(x.shape[0], "uint"), *lengths,
        *(Constant(v, "long") for v in (*strides, target.strides[0], params["ignore_index"])), *more,
    ]  # fmt: skip
    return runtime.launch(
        name, f"rowwise/{name}", definitions, parameters, (group,), (group,), options=division_options(runtime)
    )


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "cross_entropy_rows": _forward,
    "cross_entropy_rows_grad": _backward,
    "mean_loss": _mean,
    "mean_cross_entropy": _mean_with_slope,
}
