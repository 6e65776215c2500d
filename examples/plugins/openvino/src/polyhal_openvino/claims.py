"""Which ops programs may contain, and the reasons why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyhal.hal.layout import Spec
from polyhal.hal.protocol import InputSpec
from polyhal_openvino.functions import ELEMENTWISE, FUNCTIONS, INDEX, MOVEMENT, OF_BOOLS, OF_FLOATS, POSITIONS, TESTS

_COMPUTED = ("float32", "int32", "bool_")
"""OpenVINO computes 64-bit dtypes in 32 bits, and saturates smaller integers."""

_ABSENT = {
    "erf": "OpenVINO computes erf of small numbers as 0",
    "softmax": "OpenVINO's softmax is NaN only where its input is",
    "log_softmax": "OpenVINO's log_softmax is NaN only where its input is",
}
"""Why there is no function for an op of OpenVINO."""


def declined(op: str, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Mapping[str, Any]) -> str:
    """Return why a program cannot contain an op; empty if it can."""
    if op not in ELEMENTWISE and op not in MOVEMENT and op not in FUNCTIONS:
        return _ABSENT.get(op, f"this plug-in has no function for {op}")
    index = INDEX.get(op)
    tensors = [x for i, x in enumerate(inputs) if isinstance(x, Spec) and i != index]
    results = [] if op in POSITIONS else list(outputs)
    for spec in (*tensors, *results):
        if spec.dtype.name not in _COMPUTED:
            return f"OpenVINO computes in float32, int32 and bool, not in {spec.dtype.name}"
        if not spec.size:
            return "OpenVINO has no empty tensors"
    kinds = {x.dtype.name for x in (tensors[1:] if op == "where" else tensors)}
    numbers = [x.dtype for x in inputs if x is not None and not isinstance(x, Spec)]
    if op in FUNCTIONS or op in OF_FLOATS:
        return _floats_only(op, inputs, outputs, params, kinds, results)
    if op in OF_BOOLS:
        return "" if kinds == {"bool_"} else f"this plug-in computes {op} of bools only"
    if len(kinds) > 1 and op in ELEMENTWISE:
        return f"this plug-in computes {op} of operands of one dtype only"
    if op in TESTS:
        if "bool_" in kinds or not kinds:
            return f"this plug-in computes {op} of numbers only"
        if kinds == {"int32"} and any(d.name != "int32" and d.is_floating_point for d in numbers):
            return f"this plug-in does not compare integers with a float in {op}"
        return ""
    if op in ELEMENTWISE and op not in ("where", "cast") and results[0].dtype.name == "bool_":
        return f"this plug-in computes {op} of numbers only"
    return ""


def _floats_only(
    op: str,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
    params: Mapping[str, Any],
    kinds: set[str],
    results: Sequence[Spec],
) -> str:
    if not kinds <= {"float32"} or any(x.dtype.name != "float32" for x in results):
        return f"this plug-in computes {op} in float32 only"
    if op == "attention":
        q, k, _, mask = inputs
        if mask is not None or not isinstance(q, Spec) or not isinstance(k, Spec) or q.shape[:-2] != k.shape[:-2]:
            return "this plug-in has no function for attention with a mask or shared heads"
        if params["causal"] and q.shape[-2] != k.shape[-2]:
            return "OpenVINO's causal attention takes as many queries as keys"
        if len(q.shape) < 3:
            return "OpenVINO's attention takes batches of matrices"
    return ""
