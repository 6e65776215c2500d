"""Checks of compiled graphs: every op that a backend claims, updates in place, and captured steps as whole programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import polyhal
from polyhal import optim
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.op_plan import launch_run
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.graphs import GraphNode, GraphProgram, GraphValue
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Declined, Feature
from polyhal.hal.system.reference.op_calls import ExpectedResults, OpCall, expected_results, specs_of
from polyhal.hal.testing.kit.forward import check_results, contiguous_layouts, place_inputs
from polyhal.hal.testing.kit.member_calls import MemberCheck, guarded_output
from polyhal.hal.testing.kit.sample_calls import runnable_calls
from polyhal.hal.testing.kit.scope import Scope, primary
from polyhal.tensor import Tensor

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""Tolerances for three steps in float32: some hundred roundings of 6e-8 each, relative to the largest terms of a sum."""


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, MemberCheck]]:
    """Yield the checks by name; none if the backend does not compile graphs."""
    if not device.features & Feature.GRAPHS:
        return
    yield "graphs/unknown_op", partial(unknown_op, device)
    yield "graphs/updates", partial(updates, device)
    for name, step in _STEPS.items():
        yield f"graphs/steps/{name}", partial(_compare, device, step)
    for op in OPS:
        if op.tests.samples is not None and not op.traits & (Trait.CROSS_DEVICE | Trait.COLLECTIVE | Trait.UNDEFINED):
            yield f"graphs/ops/{op.name}", partial(claimed_op, device, op, scope)


# --- single ops -----------------------------------------------------------------------------------------------------


class _Builder:
    """A graph under construction, with the arguments of its launch and checks of its results."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.inputs: list[GraphValue] = []
        self.arguments: list[Any] = []
        self.nodes: list[GraphNode] = []
        self.outputs: list[GraphValue] = []
        self._count = 0

    def value(self, spec: Spec | ScalarSpec) -> GraphValue:
        """Return a new value."""
        self._count += 1
        return GraphValue(self._count, spec)

    def input(self, argument: Any, spec: Spec | ScalarSpec) -> GraphValue:
        """Add an input with its argument: a tensor or a number."""
        self.inputs.append(self.value(spec))
        self.arguments.append(argument)
        return self.inputs[-1]

    def drop_inputs(self, count: int) -> None:
        """Remove all inputs but the first `count`."""
        del self.inputs[count:], self.arguments[count:]

    def claims(self, op: OpDef, operands: Sequence[Any], params: Any, outputs: tuple[Spec, ...]) -> bool:
        """Return whether the backend claims an op. Raises AssertionError for an answer that is none."""
        backend: Any = self.device.backend
        specs = tuple(
            x.spec if isinstance(x, GraphValue) else s for x, s in zip(operands, _specs(operands), strict=True)
        )
        answer = backend.claim_op(op.name, specs, outputs, _offered(self.device, op, params))
        assert answer is None or isinstance(answer, Declined), (
            f"claim_op returned {answer!r}; expected None or Declined"
        )
        return answer is None

    def node(
        self, op: OpDef, operands: Sequence[Any], params: Any, outputs: tuple[Spec, ...]
    ) -> tuple[GraphValue, ...]:
        """Add a node. Returns its results."""
        results = tuple(map(self.value, outputs))
        self.nodes.append(GraphNode(op.name, tuple(operands), _offered(self.device, op, params), results))
        return results

    def launch(self, donated: tuple[int | None, ...]) -> Callable[[Sequence[Any]], None] | None:
        """Return a function of the outputs that runs the program; None if the graph is declined."""
        backend: Any = self.device.backend
        graph = GraphProgram(tuple(self.inputs), tuple(self.nodes), tuple(self.outputs), donated)
        launch = backend.compile_graph(graph)
        if isinstance(launch, Declined):
            return None
        run = launch_run(self.device, launch)
        return lambda outs: run([x.ref if isinstance(x, Tensor) else x for x in self.arguments], outs)


def _offered(device: Device, op: OpDef, params: Any) -> dict[str, Any]:
    return {**params, **settings.among(op.settings, device.capabilities.settings)}


def _specs(operands: Sequence[Any]) -> tuple[Any, ...]:
    return specs_of([None if isinstance(x, GraphValue) else x for x in operands])


def claimed_op(device: Device, op: OpDef, scope: Scope) -> None:
    """Check all claimed calls of an op in its primary dtype, or in all dtypes in a full scope, as one program per dtype.

    Every second number among the operands is an input of the program, as numbers that change from run to run are.
    """
    kinds: Sequence[DType | None] = op.tests.dtypes or (None,)
    for dtype in kinds if scope.full else [d for d in kinds if d is None or d is primary(op)]:
        if dtype is None or dtype in device.capabilities.storage:
            _claimed_calls(device, op, [c for c in runnable_calls(device, op, dtype, scope) if c.computes])


def _claimed_calls(device: Device, op: OpDef, calls: Sequence[OpCall]) -> None:
    builder, made = _Builder(device), []
    for call in calls:
        values, tensors = place_inputs(call, contiguous_layouts(call), device)
        expected = expected_results(call, values=values)
        params = op.bind(_normal(call))
        view = op.view_of(specs_of(call.values)[0], params) if call.values else None
        outputs = expected.outputs if view is None else (Spec(expected.outputs[0].dtype, view.shape, view.strides),)
        if not all(x.size for x in (*outputs, *tensors) if isinstance(x, (Spec, Tensor))):
            continue  # no reference is empty
        before, operands = len(builder.inputs), list[Any]()
        for k, (x, spec) in enumerate(zip(tensors, specs_of(call.values), strict=True)):
            is_input = isinstance(x, Tensor) or (isinstance(spec, ScalarSpec) and (call.number + k) % 2)
            operands.append(builder.input(x, spec) if is_input else x)
        if not builder.claims(op, operands, params, outputs):
            builder.drop_inputs(before)
            continue
        results = builder.node(op, operands, params, outputs)
        negated = None
        if view is not None:  # a view cannot be an output
            negated = OPS["logical_not" if outputs[0].dtype is dtypes.bool_ else "negative"]
            spec = expected.outputs
            if outputs[0].dtype.kind == "uint" or not builder.claims(negated, results, {}, spec):
                continue
            results = builder.node(negated, results, {}, spec)
        outs = [guarded_output(s.dtype, s.shape, device, call.number + k) for k, s in enumerate(expected.outputs)]
        builder.outputs += results
        made.append((call, expected, outs, negated))
    run = builder.launch((None,) * len(builder.outputs)) if builder.outputs else None
    if run is None:
        return
    old_values = [x.numpy() if isinstance(x, Tensor) else x for x in builder.arguments]
    run([out.tensor.ref for _, _, outs, _ in made for out in outs])
    for call, expected, outs, negated in made:
        if negated is not None:
            expected = _negated(expected)
        check_results(call, tuple(out.tensor for out in outs), expected, f"{call} in a program")
        for out in outs:
            out.check(f"{call} in a program")
    for x, old in zip(builder.arguments, old_values, strict=True):
        if isinstance(x, Tensor):
            np.testing.assert_array_equal(x.numpy(), old, f"a program of {op.name} changed an input")


def _normal(call: OpCall) -> tuple[Any, ...]:
    """Return the parameters of a call as the rules of its op normalize them."""
    params = dict(call.params)
    dispatch.infer(call.op, specs_of(call.values), params, call.stand_ins)
    frozen: tuple[Any, ...] = dispatch.freeze(tuple(params.values()))
    return frozen


def _negated(expected: ExpectedResults) -> ExpectedResults:
    """Return the expected results of the negation of a view."""
    values = tuple(np.logical_not(v) if v.dtype == bool else np.negative(v) for v in expected.values)
    return replace(expected, values=values)


def unknown_op(device: Device) -> None:
    """Check that the backend declines an op that it cannot know: ops of packages are offered to all backends."""
    builder = _Builder(device)
    op = OpDef(
        name="op_of_an_unknown_package",
        family="elementwise",
        doc="",
        schema=OPS["exp"].schema,
        infer=OPS["exp"].infer,
        reference=np.exp,
        public=False,
    )
    x = GraphValue(0, Spec(dtypes.float32, (3,), (1,)))
    assert not builder.claims(op, [x], {}, (Spec(dtypes.float32, (3,), (1,)),)), "claim_op claims every name"


def updates(device: Device) -> None:
    """Check a program that replaces an input by an output, with a number that changes from run to run."""
    builder = _Builder(device)
    spec = Spec(dtypes.float32, (3, 5), (5, 1))
    start = np.arange(15, dtype=np.float32).reshape(3, 5)
    w, g = (Tensor(a, device=device) for a in (start.copy(), start + 1))
    old, gradient = builder.input(w, spec), builder.input(g, spec)
    rate = builder.input(0.5, ScalarSpec(dtypes.float32))
    multiply, subtract, total = OPS["multiply"], OPS["subtract"], OPS["sum"]
    one = Spec(dtypes.float32, (), ())
    axes = {"axis": (0, 1), "keepdims": False}
    if not (
        builder.claims(multiply, [gradient, rate], {}, (spec,))
        and builder.claims(subtract, [old, gradient], {}, (spec,))
        and builder.claims(total, [old], axes, (one,))
    ):
        return
    (change,) = builder.node(multiply, [gradient, rate], {}, (spec,))
    (new,) = builder.node(subtract, [old, change], {}, (spec,))
    (before,) = builder.node(total, [old], axes, (one,))
    builder.outputs += [before, new]
    run = builder.launch((None, 0))
    assert run is not None, "compile_graph declined a graph of three claimed ops"
    sums, expected = Tensor(np.zeros((), np.float32), device=device), start.astype(np.float64)
    for number in (0.5, 0.25, -2.0):
        builder.arguments[2] = number
        run([sums.ref, w.ref])
        np.testing.assert_allclose(sums.numpy(), expected.sum(), rtol=1e-5, err_msg="reads an input that it replaces")
        expected = expected - number * (start + 1)
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5, err_msg=f"an update by {number} is wrong")
    assert (g.numpy() == start + 1).all(), "an input that is not donated was changed"


# --- captured steps -------------------------------------------------------------------------------------------------


def _compare(device: Device, step: Callable[[Device], list[np.ndarray]]) -> None:
    """Check that a program of captured steps has the same results on the device as on NumPy's."""
    for number, (found, expected) in enumerate(zip(step(device), step(Device("numpy")), strict=True)):
        np.testing.assert_allclose(found, expected, rtol=_RELATIVE, atol=_ABSOLUTE, err_msg=f"result {number}")


def _training(device: Device) -> list[np.ndarray]:
    """Train with dropout, an optimizer with state, and a learning rate that changes."""
    polyhal.manual_seed(7)
    rng = np.random.default_rng(0)
    w, v = (
        Tensor(rng.standard_normal(shape).astype(np.float32) / 2, device=device, requires_grad=True)
        for shape in ((6, 16), (16, 3))
    )
    optimizer = optim.AdamW([w, v], lr=0.01)
    x = Tensor(rng.standard_normal((8, 6)).astype(np.float32), device=device)
    y = Tensor(np.arange(8, dtype=np.int32) % 3, device=device)

    @polyhal.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        hidden = polyhal.nn.functional.dropout(polyhal.gelu(x @ w), 0.25)
        loss = polyhal.nn.functional.cross_entropy(hidden @ v, y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for k in range(4):
        optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)
        losses.append(step(x, y).numpy())
    return [*losses, w.numpy(), v.numpy()]


def _random(device: Device) -> list[np.ndarray]:
    """Draw random numbers in a captured step, different in each run."""
    polyhal.manual_seed(3)
    step = polyhal.jit(lambda: (polyhal.rand((33,), device=device) + 0.5, polyhal.randn((4, 5), device=device) * 2))
    runs = [[x.numpy() for x in step()] for _ in range(3)]
    assert not np.array_equal(runs[1][0], runs[2][0]), "two runs of a step draw the same numbers"
    return [x for run in runs for x in run]


def _results(device: Device) -> list[np.ndarray]:
    """Return several results: views, equal values, an argument, and the new value of state that the step changes."""
    state = Tensor(np.zeros((2, 3), np.float32), device=device)

    @partial(polyhal.jit, warm_up=False)
    def step(x: Tensor) -> tuple[Tensor, ...]:
        y = polyhal.exp(x.permute((1, 0)))
        state.add_(y)
        return y[1], y.sum(0), polyhal.exp(x.permute((1, 0))), x, state * 1

    found: list[np.ndarray] = []
    kept = []
    for k in range(3):
        x = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2) / (k + 1), device=device)
        kept += step(x)
        found.append(state.numpy())
    return [*found, *(x.numpy() for x in kept)]


def _errors(device: Device) -> list[np.ndarray]:
    """Raise an error between programs: the step changes nothing, and the next run is right."""
    fails = [True]
    state = Tensor(np.ones(4, np.float32), device=device)

    def check(x: np.ndarray) -> np.ndarray:
        if fails[0]:
            raise ValueError("planted")
        return x

    @partial(polyhal.jit, warm_up=False)
    def step(x: Tensor) -> Tensor:
        y = polyhal.exp(x) * 2
        (z,) = polyhal.host_call(check, y, results=[((4,), dtypes.float32)])
        state.copy_(state + z + y)
        return z + 1

    x = Tensor(np.arange(4, dtype=np.float32), device=device)
    try:
        step(x)
    except ValueError:
        pass
    else:
        raise AssertionError("an error of a function that a step calls was lost")
    found = [state.numpy()]
    fails[0] = False
    return [*found, step(x).numpy(), state.numpy()]


def _weights(device: Device) -> list[np.ndarray]:
    """Change a captured weight between two runs, by an op and by a copy from the host."""
    w = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    step = polyhal.jit(lambda x: polyhal.relu(x @ w + 1), warm_up=False)
    x, found = Tensor(np.ones((4, 2), np.float32), device=device), []
    changes = (
        None,
        lambda: w.mul_(-0.5),
        lambda: w.copy_(Tensor(np.ones((2, 3), np.float32), device="numpy")),
        lambda: w[1].fill_(3.0),
    )
    for change in changes:
        if change is not None:
            change()
        found += [step(x).numpy() for _ in range(2)]
    return found


_STEPS: dict[str, Callable[[Device], list[np.ndarray]]] = {
    "training": _training,
    "random": _random,
    "results": _results,
    "errors": _errors,
    "weights": _weights,
}

__all__ = ["checks"]
