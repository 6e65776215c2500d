"""Cross entropy by rows and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import cross_entropy
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
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
    args: Arguments = {
        "x": Tensor(0), "target": Strided(Tensor(1), {"step": target.strides[0]}), "loss": Tensor(2), "lse": Tensor(3),
        "ignored": params["ignore_index"], "smoothing": smoothing, **arranged.args("x"),
    }  # fmt: skip
    return runtime.launch(
        "cross_entropy", "rowwise/cross_entropy", definitions, args, arranged.blocks, arranged.threads
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
    args: Arguments = {
        "g": Strided(Tensor(0), {"step": g.strides[0]}), "x": Tensor(1),
        "target": Strided(Tensor(2), {"step": target.strides[0]}),
        "lse": Strided(Tensor(3), {"step": lse.strides[0], "part": lse.strides[1]}), "dx": Tensor(4),
        "ignored": params["ignore_index"], "smoothing": params["label_smoothing"], **arranged.args("x", "dx"),
    }  # fmt: skip
    return runtime.launch(
        "cross_entropy_grad", "rowwise/cross_entropy", definitions, args, arranged.blocks, arranged.threads,
        kernel="cross_entropy_grad",
    )  # fmt: skip


LOWERINGS: dict[str, LoweringFunction] = {
    "cross_entropy_rows": _forward,
    "cross_entropy_rows_grad": _backward,
}
