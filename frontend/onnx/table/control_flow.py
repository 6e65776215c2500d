"""If, Loop and Scan. Their conditions and counts are read on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.evaluation_values import as_tensor, is_host, to_host
from polyhal.onnx.registration import NodeFacts, Value, operator


@operator("If", host=("condition",), foldable=False)
def if_(condition: Value, *, then_branch: Value, else_branch: Value, node: NodeFacts) -> Any:
    return tuple(node.run(then_branch if np.asarray(condition).reshape(-1)[0] else else_branch))


@operator("Loop", raw=True)
def loop(count: Value, condition: Value, *states: Value, body: Value, node: NodeFacts) -> Any:
    limit = None if count is None else int(to_host(count).reshape(-1)[0])
    going = True if condition is None else bool(to_host(condition).reshape(-1)[0])
    carried = list(states)
    collected: list[list[Value]] = [[] for _ in range(len(body.outputs) - 1 - len(carried))]
    turn = 0
    while going and (limit is None or turn < limit):
        again, *results = node.run(body, np.array(turn, np.int64), np.array(True), *carried)
        going = bool(to_host(again).reshape(-1)[0])
        carried = results[: len(carried)]
        for kept, value in zip(collected, results[len(carried) :], strict=True):
            kept.append(value)
        turn += 1
    return (*carried, *(_stacked(values, 0, node) for values in collected))


def _stacked(values: list[Value], axis: int, node: NodeFacts) -> Any:
    if not values:
        raise ValueError("a loop without a turn has results with an unknown shape")
    if all(map(is_host, values)):
        return np.stack(values, axis)
    return ph.stack([as_tensor(v, node) for v in values], axis)


@operator("Scan", since=9, foldable=False)
def scan(
    *values: Value,
    body: Value,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    node: NodeFacts,
) -> Any:
    first = len(values) - num_scan_inputs
    states, inputs = list(values[:first]), values[first:]
    axes, backward = scan_input_axes or [0] * num_scan_inputs, scan_input_directions or [0] * num_scan_inputs
    steps = inputs[0].shape[axes[0]]
    collected: list[list[Value]] = [[] for _ in range(len(body.outputs) - first)]
    for turn in range(steps):
        parts = [
            ph.squeeze(ph.narrow(x, a, steps - 1 - turn if d else turn, 1), a)
            for x, a, d in zip(inputs, axes, backward, strict=True)
        ]
        results = node.run(body, *states, *parts)
        states = results[:first]
        for kept, value in zip(collected, results[first:], strict=True):
            kept.append(value)
    out_axes = scan_output_axes or [0] * len(collected)
    reverse = scan_output_directions or [0] * len(collected)
    made = [_stacked(c[::-1] if d else c, a, node) for c, a, d in zip(collected, out_axes, reverse, strict=True)]
    return (*states, *made)
