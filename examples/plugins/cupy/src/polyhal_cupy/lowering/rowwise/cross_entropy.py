"""Cross entropy by rows and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import cross_entropy
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.launch import longs, pointers
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = cross_entropy.forward(inputs)
    if isinstance(found, Declined):
        return found
    logits, target = found
    arranged = rows.arrange((logits,), 1)
    if isinstance(arranged, Declined):
        return arranged
    smoothing = params["label_smoothing"]
    definitions = arranged.definitions | {"INDEX_DTYPE": target.dtype.name, "SMOOTHED": smoothing != 0}
    parameters = [
        *pointers(0, 1, 2, 3), *longs(target.strides[0], params["ignore_index"]), rows.real(smoothing, logits.dtype),
        *arranged.parameters,
    ]  # fmt: skip
    return runtime.launch(
        "cross_entropy", "rowwise/cross_entropy", definitions, parameters, arranged.blocks, arranged.threads
    )


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = cross_entropy.backward(inputs)
    if isinstance(found, Declined):
        return found
    g, logits, target, lse = found
    if params["columns"]:
        return Declined("rows with more columns than classes")
    arranged = rows.arrange((logits, outputs[0]), 1)
    if isinstance(arranged, Declined):
        return arranged
    definitions = arranged.definitions | {"INDEX_DTYPE": target.dtype.name, "GRADIENT_DTYPE": g.dtype.name}
    parameters = [
        *pointers(0, 1, 2, 3, 4), *longs(g.strides[0], target.strides[0], lse.strides[0], params["ignore_index"]),
        rows.real(params["label_smoothing"], logits.dtype), *arranged.parameters,
    ]  # fmt: skip
    return runtime.launch(
        "cross_entropy_grad", "rowwise/cross_entropy", definitions, parameters, arranged.blocks, arranged.threads,
        kernel="cross_entropy_grad",
    )  # fmt: skip


LOWERINGS: dict[str, LoweringFunction] = {
    "cross_entropy_rows": _forward,
    "cross_entropy_rows_grad": _backward,
}
