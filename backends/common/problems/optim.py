"""Optimizer steps and gradient scaling over many tensors: what every shader language shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Number, ScalarType, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.multi_tensor import (
    Inputs,
    Kernel,
    Makers,
    More,
    Operand,
    Parameter,
    Slot,
    Step,
    by_dtype,
    dense,
    settle,
)
from polyhal.hal import dtypes
from polyhal.hal.capture.runtime_scalars import derive
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch


def lowerings(makers: Makers) -> dict[str, LoweringFunction]:
    """The lowering functions of this family on one backend's kernels."""
    functions = {
        "adam_step": _adam, "sgd_step": _sgd, "scale_all": _scale_all, "unscale_all": _unscale_all,
        "sum_of_squares": _sum_of_squares,
    }  # fmt: skip
    return {op: _with(makers, function) for op, function in functions.items()}


def _with(makers: Makers, function: Callable[..., Launch | Declined]) -> LoweringFunction:
    def lower(runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Launch | Declined:
        return function(makers, runtime, inputs, outputs, params)

    return lower


def _specs(inputs: Inputs) -> list[Spec]:
    return [s for s in inputs if isinstance(s, Spec)]


def _too_large(specs: Sequence[Spec]) -> bool:
    return any(s.size >= 1 << 31 for s in specs)


def _always(parameters: Sequence[Parameter]) -> More:
    return lambda _: parameters


# --- steps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Derived:
    """The numbers that a kernel is given, computed in double precision from the op's own at every launch."""

    function: Callable[..., tuple[float, ...]]
    takes: int
    gives: int

    def around(self, steps: Sequence[Step], first: int, total: int) -> Step:
        """Run `steps` with the numbers appended to the arguments, of which there are `total`; the op's begin at `first`."""

        def run(*args: Any) -> None:
            extended = (*args[:total], *derive(self.function, args[first : first + self.takes], self.gives))
            for step in steps:
                step(*extended)

        return run


def _adam_numbers(
    decoupled: bool,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    correction1: float,
    correction2: float,
) -> tuple[float, ...]:
    """In double precision: 1 - 0.999 in single precision would be off by 5e-5."""
    shrink, coupled = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    return lr / correction1, 1 / math.sqrt(correction2), eps, shrink, coupled, beta1, 1 - beta1, beta2, 1 - beta2


def _sgd_numbers(lr: float, momentum: float, dampening: float, decay: float) -> tuple[float, ...]:
    return lr, decay, momentum, 1 - dampening


def _adam_counted(
    decoupled: bool, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> tuple[float, ...]:
    """The same where the number of the step lies on the device: what its corrections are computed from there."""
    _, _, *rest = _adam_numbers(decoupled, lr, beta1, beta2, eps, decay, 1.0, 1.0)
    return (
        lr,
        0.0,
        *rest,
        *(max(math.log(beta), _LEAST_LOGARITHM) if beta else _LEAST_LOGARITHM for beta in (beta1, beta2)),
    )


_LEAST_LOGARITHM = -1e4
"""Stands for that of 0, as shaders may not know infinities. The exponential of both is 0."""
_ADAM_DECOUPLED = Derived(lambda *numbers: _adam_numbers(True, *numbers), 7, 9)
_ADAM_COUPLED = Derived(lambda *numbers: _adam_numbers(False, *numbers), 7, 9)
_ADAM_DECOUPLED_COUNTED = Derived(lambda *numbers: _adam_counted(True, *numbers), 5, 11)
_ADAM_COUPLED_COUNTED = Derived(lambda *numbers: _adam_counted(False, *numbers), 5, 11)
_SGD = Derived(_sgd_numbers, 4, 4)


def _step(
    makers: Makers,
    runtime: Any,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    count: int,
    kernel: str,
    names: tuple[str, ...],
    numbers: Derived,
    flags: Mapping[str, bool],
    *,
    counted: bool,
) -> Launch | Declined:
    """A step whose inputs are `count` parameters, gradients and states, `names` being what the kernel calls them.

    If `counted`, the last input is the number of the step, in device memory.
    """
    kinds = len(names)
    groups = [inputs[i * count : (i + 1) * count] for i in range(kinds)]
    turn = inputs[-1] if counted else None
    tensors = _specs(inputs[:-1] if counted else inputs)
    if len(tensors) != count * kinds or _too_large(tensors):
        return Declined("a parameter has 2^31 elements or more, or is a number")
    params, grads, *states = ([s for s in g if isinstance(s, Spec)] for g in groups)
    if any(s.dtype.itemsize < 4 or not s.dtype.is_floating_point for group in states for s in group):
        return Declined("optimizer state in half precision")
    if any(not s.dtype.is_floating_point for s in (*params, *grads)):
        return Declined("parameters or gradients that are not floating point")
    # Outputs are the parameters and then each state.
    written = [i for i in range(kinds) if i != 1]
    pairs = [(kind * count + i, n * count + i) for n, kind in enumerate(written) for i in range(count)]
    settled = settle(makers.copy, runtime, pairs, inputs, outputs)
    first_workspace = len(inputs) + len(outputs)
    copies, workspace, given = dense(makers, runtime, {count + i: s for i, s in enumerate(grads)}, first_workspace)
    total = first_workspace + len(workspace)
    steps: list[Step] = [settled, *copies]
    keys = [tuple(s.dtype for s in slot) for slot in zip(params, grads, *states, strict=True)]
    for key, members in by_dtype(keys).items():
        real: ScalarType = "double" if dtypes.float64 in key else "float"
        definitions: dict[str, str | bool] = {
            "PARAMETER_DTYPE": key[0].name, "GRADIENT_DTYPE": key[1].name,
            "STATE_DTYPE": key[2].name if kinds > 2 else "float32", **flags,
            **({"COUNTED": True, "TURN_DTYPE": turn.dtype.name} if isinstance(turn, Spec) else {}),
        }  # fmt: skip
        operands = tuple(Operand(name, d, i == 1) for i, (name, d) in enumerate(zip(names, key, strict=True)))
        slots = []
        for i in members:
            places = [
                given[count + i] if kind == 1 else Tensor(len(inputs) + written.index(kind) * count + i)
                for kind in range(kinds)
            ]
            aligned = all(outputs[n * count + i].aligned for n in range(len(written)))
            aligned = aligned and (grads[i].aligned or isinstance(places[1], Workspace))
            slots.append(Slot(tuple(places), params[i].size, aligned))
        more: list[Parameter] = [Tensor(len(inputs) - 1)] if counted else []
        more += [Number(total + i, real) for i in range(numbers.gives)]
        steps += makers.over_slots(runtime, Kernel(kernel, operands, definitions, real), slots, _always(more))[0]
    return LaunchSequence(kernel, (numbers.around(steps, count * kinds, total),), tuple(workspace))


def _adam(
    makers: Makers, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    counted = params["counted"]
    if counted:
        numbers = _ADAM_DECOUPLED_COUNTED if params["decoupled"] else _ADAM_COUPLED_COUNTED
    else:
        numbers = _ADAM_DECOUPLED if params["decoupled"] else _ADAM_COUPLED
    names = ("p", "g", "m", "v")
    return _step(makers, runtime, inputs, outputs, params["count"], "adam_step", names, numbers, {}, counted=counted)


def _sgd(
    makers: Makers, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    count, counted = params["count"], params["counted"]
    momentum = len(_specs(inputs)) - counted == 3 * count
    flags = {"MOMENTUM": momentum, "NESTEROV": bool(params["nesterov"])}
    names = ("p", "g", "b") if momentum else ("p", "g")
    return _step(makers, runtime, inputs, outputs, count, "sgd_step", names, _SGD, flags, counted=counted)


# --- gradients together ---------------------------------------------------------------------------------------------


def _refusal(inputs: Inputs) -> str:
    """Why the kernels cannot take these tensors; empty when they can."""
    tensors = _specs(inputs)
    if len(tensors) != len(inputs) or _too_large(tensors):
        return "a tensor has 2^31 elements or more, or is a number"
    return "" if all(s.dtype.is_floating_point for s in tensors) else "tensors that are not floating point"


def _real(dtype: DType) -> ScalarType:
    return "double" if dtype is dtypes.float64 else "float"


def _scale_all(
    makers: Makers, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    refusal = _refusal(inputs)
    if refusal:
        return Declined(refusal)
    return _scaled(makers, runtime, inputs, outputs, "scale_all", {}, [])


def _unscale_all(
    makers: Makers, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    refusal = _refusal(inputs)
    if makers.fill is None:
        refusal = refusal or "no kernel looks for infinities and NaN"
    if refusal:
        return Declined(refusal)
    *scaled, flag = outputs
    assert makers.fill is not None
    clear = makers.fill(runtime, flag)
    place = len(inputs) + len(scaled)
    launch = _scaled(makers, runtime, inputs, tuple(scaled), "unscale_all", {"CHECK": True}, [Tensor(place)])
    return LaunchSequence("unscale_all", (lambda *args: clear(0, args[place]), launch))


def _scaled(
    makers: Makers,
    runtime: Any,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    name: str,
    flags: Mapping[str, bool],
    more: Sequence[Parameter],
) -> Launch:
    """Outputs that are the inputs times the last of these."""
    count = len(outputs)
    factor = _specs(inputs)[-1]
    steps: list[Step] = [settle(makers.copy, runtime, [(i, i) for i in range(count)], inputs, outputs)]
    for (dtype,), members in by_dtype([(s.dtype,) for s in outputs]).items():
        definitions: dict[str, str | bool] = {"DTYPE": dtype.name, "FACTOR_DTYPE": factor.dtype.name, **flags}
        kernel = Kernel("scale_all", (Operand("x", dtype),), definitions, _real(dtype))
        slots = [Slot((Tensor(len(inputs) + i),), outputs[i].size, outputs[i].aligned) for i in members]
        steps += makers.over_slots(runtime, kernel, slots, _always([Tensor(count), *more]))[0]
    return LaunchSequence(name, steps)


def _placed(partial: Workspace, before: int) -> More:
    """Where the sums of a launch go when `before` and those of the launches before it lie there already."""
    return lambda chunks: [partial, Constant(before + chunks, "uint")]


def _sum_of_squares(
    makers: Makers, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    refusal = _refusal(inputs)
    if refusal:
        return Declined(refusal)
    tensors = _specs(inputs)
    # The partial sums come first among the workspaces.
    partial = Workspace(len(inputs) + 1)
    copies, workspace, given = dense(makers, runtime, dict(enumerate(tensors)), partial.index + 1)
    steps: list[Step] = list(copies)
    chunks = 0
    for (dtype,), members in by_dtype([(s.dtype,) for s in tensors]).items():
        kernel = Kernel("squares_of_chunks", (Operand("x", dtype, True),), {"DTYPE": dtype.name}, _real(dtype))
        slots = [
            Slot((given[i],), tensors[i].size, tensors[i].aligned or isinstance(given[i], Workspace)) for i in members
        ]
        launches, made = makers.over_slots(runtime, kernel, slots, _placed(partial, chunks))
        steps += launches
        chunks += made
    steps.append(makers.total(runtime, partial, Tensor(len(inputs)), chunks))
    return LaunchSequence("sum_of_squares", steps, (chunks * 4, *workspace))
