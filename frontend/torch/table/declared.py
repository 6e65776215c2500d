"""Entries that follow from declarations: overloads with the arguments of an op or function of Polyhal (`hal/ops/names.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops import DECLARED, OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.returns import Returns, declared_returns
from polyhal.torch.registration import TABLE, Entry, add_entry, cuts_gradients, full_name
from polyhal.torch.table.operands import promoted

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


def _is_elementwise(op: OpDef) -> bool:
    """Return whether an op is elementwise without parameters, so that it can write its result in place."""
    return op.promotion not in (None, "cast") and not op.schema.params


def _entry(function: Callable[..., Any]) -> Entry:
    op: OpDef | None = getattr(function, "op", None)
    if op is None or not _is_elementwise(op):
        return Entry(function, None, declared_returns(function) is Returns.VIEW)
    call = function if len(op.schema.inputs) == 1 else _of_promoted(function)
    return Entry(call, None if _returns_truth(op) else op, False)


def _of_promoted(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def compute(a: Tensor, b: Tensor | float) -> Any:
        return function(*promoted(a, b))

    return compute


def _returns_truth(op: OpDef) -> bool:
    """Return whether results are of bool, which a target of another dtype receives through a cast."""
    ((dtype, _),) = op.infer((Spec(dtypes.int32, (), ()),) * len(op.schema.inputs), {})
    return dtype is dtypes.bool_


def _overloads_of_names(op: OpDef) -> Iterator[str]:
    """Yield the overloads with a name of an op that take exactly its operands and are differentiated as a whole."""
    for name in (op.name, *op.names.also):
        package, _, last = name.rpartition(".")
        own = f"special_{last or op.name}" if package == "special" else name
        packet = getattr(torch.ops.aten, own, None)
        for which in () if packet is None else packet.overloads():
            overload = getattr(packet, which)
            kinds = [a.type.kind() for a in overload._schema.arguments]
            fits = len(kinds) == len(op.schema.inputs) and {"TensorType"} <= {*kinds} <= {"TensorType", "NumberType"}
            if fits and not cuts_gradients(overload):
                yield f"{own}.{which}"


for _function in DECLARED:
    for _name in _function.__names__.aten:  # type: ignore[attr-defined]
        add_entry(f"{_function.__name__}{_name}" if _name.startswith(".") else _name, _entry(_function))
for _op in OPS:
    if _is_elementwise(_op) and len(_op.schema.inputs) <= 2:
        for _name in _overloads_of_names(_op):
            if full_name(_name) not in TABLE:
                add_entry(_name, _entry(_op.call))
