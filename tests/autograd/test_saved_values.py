"""Ops save a tensor for backward only if a requested gradient reads it: all ops, with all subsets of inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from polyhal import Device, Tensor
from polyhal.autograd import backward
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import float64
from polyhal.hal.errors import LinAlgError
from polyhal.hal.ops import OPS
from polyhal.hal.system.reference.op_calls import OpCall
from polyhal.hal.testing.kit.gradients import differentiable_calls, is_differentiable
from polyhal.hal.testing.kit.scope import Scope
from polyhal.tape.tape import SavedInput, SavedOutput

DEVICE = Device("numpy")
DIFFERENTIABLE = [op.name for op in OPS if is_differentiable(DEVICE, op, Scope(small=True))]

UNREAD = {
    **dict.fromkeys(
        ("gru", "lstm", "layer_norm", "rms_norm", "group_norm", "batch_norm", "fused_linear"),
        "one kernel computes the gradients of all inputs, and takes what any of them reads",
    ),
    "attention": "a leaf is kept for a second gradient whether that reads it or not",
    "maximum_rows": "the row that is written to is only read where elements are equal",
    **dict.fromkeys(("pow", "xlogy", "xlog1py"), "an operand is only looked at where the other one is 0"),
}
"""Ops that save more than these samples read, and why."""


def sampled_calls(name: str) -> list[OpCall]:
    """Return a few small calls, among them calls with Python scalars and absent inputs."""
    calls = differentiable_calls(DEVICE, OPS[name], float64, Scope(full=True))
    return sorted(calls, key=lambda c: (c.outputs()[0].size <= 1, c.elements))[:4]


def moving(call: OpCall) -> list[int]:
    return [i for i, v in enumerate(call.values) if isinstance(v, np.ndarray) and v.dtype.kind == "f" and v.size]


def choices(call: OpCall) -> Iterator[tuple[int, ...]]:
    """Return the subsets of inputs that require gradients: all of them, and each one separately."""
    inputs = moving(call)
    yield tuple(inputs)
    if len(inputs) > 1:
        yield from ((i,) for i in inputs)


def run(call: OpCall, chosen: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Return the inputs as tensors, and the differentiable results."""
    inputs = [
        Tensor(v, device=DEVICE, requires_grad=i in chosen) if isinstance(v, np.ndarray) else v
        for i, v in enumerate(call.values)
    ]
    op = call.op
    arguments = [tuple(inputs)] if op.schema.variadic else inputs
    with dispatch.default_device(DEVICE):
        result = op.call(*arguments, **call.params)
    results = result if isinstance(result, tuple) else (result,)
    names = op.schema.outputs if op.gradient is None else [n[2:] for n in op.gradient.needs if n.startswith("g_")]
    flowing = [
        r for i, r in enumerate(results) if i == 0 or (i < len(op.schema.outputs) and op.schema.outputs[i] in names)
    ]
    return inputs, [r for r in flowing if r.requires_grad]


def gradients(call: OpCall, chosen: tuple[int, ...], spoil: Any = None) -> list[np.ndarray]:
    """Return the gradients of the chosen inputs; `spoil` is called with the result's node before the backward pass."""
    inputs, outs = run(call, chosen)
    if not outs:
        return []
    if spoil is not None:
        spoil(outs[0].node)
    rng = np.random.default_rng(1)
    seeds = [Tensor(rng.uniform(0.5, 1.5, o.shape), dtype=o.dtype, device=DEVICE) for o in outs]
    backward(outs, seeds)
    return [np.zeros(inputs[i].shape) if inputs[i].grad is None else inputs[i].grad.numpy() for i in chosen]


def buffers(node: Any) -> dict[str, Any]:
    """Return the memory that a node saves, by the names of inputs and outputs."""
    found = {}
    for name, saved in node.saved.items():
        several = saved if isinstance(saved, tuple) and not isinstance(saved, (SavedInput, SavedOutput)) else (saved,)
        for position, s in enumerate(several):
            if isinstance(s, (SavedInput, SavedOutput)):
                found[f"{name}.{position}"] = s.tensor if isinstance(s, SavedInput) else s
    return found


def spoil(values: Any) -> None:
    """Change elements without a change of the tensor's version."""
    dtype = values.ref.dtype.numpy
    array = values.buffer.handle.view(dtype)[: values.ref.size]
    array[...] = np.nan if dtype.kind == "f" else ~array if dtype.kind == "b" else array.max() - array


def reads(call: OpCall, chosen: tuple[int, ...], key: str) -> bool:
    """Return True if gradients change, or cannot be computed, once a saved value is changed."""
    right = gradients(call, chosen)
    try:
        wrong = gradients(call, chosen, lambda node: spoil(buffers(node)[key]))
    except (IndexError, LinAlgError, np.linalg.LinAlgError):
        return True
    return any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(right, wrong, strict=True))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_some_inputs_equal_the_gradients_of_all(name: str) -> None:
    for call in sampled_calls(name):
        whole = gradients(call, tuple(moving(call)))
        for chosen in itertools.islice(choices(call), 1, None):
            for mine, i in zip(gradients(call, chosen), chosen, strict=True):
                np.testing.assert_allclose(mine, whole[moving(call).index(i)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if n not in UNREAD])
def test_every_saved_value_is_read(name: str) -> None:
    """If no gradient changes with a saved value, the value is saved unnecessarily."""
    read: dict[tuple[Any, str], bool] = {}
    for call in sampled_calls(name):
        numbers = tuple(not isinstance(v, np.ndarray) for v in call.values)
        for chosen in choices(call):
            _, outs = run(call, chosen)
            for key, values in buffers(outs[0].node).items() if outs else ():
                case = (chosen, numbers), key
                read[case] = read.get(case, False) or not values.ref.size or reads(call, chosen, key)
    assert [case for case, was_read in read.items() if not was_read] == []
