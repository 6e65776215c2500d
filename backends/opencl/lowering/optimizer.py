"""Optimizer steps and gradient scaling over many tensors, a launch for as many as its parameters hold.

Kernels work in place on the outputs. Where the framework passes outputs apart from their inputs, those are copied first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.launch import Constant, LaunchSequence, Number, ScalarType, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering import movement
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.lowering.slots import Operand, batches, definitions
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Step = Callable[..., None]


def _storage(dtype: DType) -> str:
    return f"STORAGE({dtype.name})"


def _settle(runtime: Runtime, pairs: Sequence[tuple[int, int]], inputs: Inputs, outputs: tuple[Spec, ...]) -> Step:
    """A step that copies input to output, by position, for every pair that is not the same memory."""
    first_output = len(inputs)
    copies: dict[tuple[Spec, Spec], Launch] = {}
    planned = []
    for i, o in pairs:
        spec = inputs[i]
        assert isinstance(spec, Spec)
        target = outputs[o]
        if (spec, target) not in copies:
            copies[spec, target] = movement.copy(runtime, spec, target)
        planned.append((i, first_output + o, copies[spec, target]))

    def run(*args: Any) -> None:
        for i, o, copy in planned:
            source, target = args[i], args[o]
            if source.handle is not target.handle or source.offset != target.offset:
                copy(source, target)

    return run


def _dense(
    runtime: Runtime, specs: Mapping[int, Spec], first_workspace: int
) -> tuple[list[Step], list[int], dict[int, Parameter]]:
    """Steps that make the inputs at these positions contiguous in workspaces, their sizes, and how a kernel is given each."""
    steps: list[Step] = []
    workspace: list[int] = []
    given: dict[int, Parameter] = {}
    for position, spec in specs.items():
        if spec.is_contiguous:
            given[position] = Tensor(position)
            continue
        target = contiguous(spec.dtype, spec.shape)
        copy = movement.copy(runtime, spec, target)
        place = first_workspace + len(workspace)

        def gather(
            *args: Any, copy: Launch = copy, position: int = position, place: int = place, target: Spec = target
        ) -> None:
            copy(args[position], Ref(args[place], target, 0))

        steps.append(gather)
        workspace.append(target.nbytes)
        given[position] = Workspace(place)
    return steps, workspace, given


def _with_offset(parameter: Parameter) -> tuple[Parameter, ...]:
    """A workspace brings no offset; kernels over slots expect one."""
    return (parameter, Constant(0, "ulong")) if isinstance(parameter, Workspace) else (parameter,)


def _specs(inputs: Inputs) -> list[Spec]:
    return [s for s in inputs if isinstance(s, Spec)]


def _by_dtype(keys: Sequence[tuple[DType, ...]]) -> dict[tuple[DType, ...], list[int]]:
    """Positions of slots by the dtypes of their operands: one program handles one combination."""
    groups: dict[tuple[DType, ...], list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return groups


def _too_large(specs: Sequence[Spec]) -> bool:
    return any(s.size >= 1 << 31 for s in specs)


def _derived(steps: Sequence[Step], derive: Callable[..., tuple[float, ...]], first: int, total: int) -> Step:
    """Run `steps` with numbers computed from the op's own (at positions from `first` on) appended to the arguments.

    `total` is how many arguments there are before the appended ones.
    """

    def run(*args: Any) -> None:
        numbers = derive(*args[first : first + _NUMBERS[derive]])
        extended = (*args[:total], *numbers)
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
    """The kernel's numbers, in double precision: 1 - 0.999 in single precision would be off by 5e-5."""
    shrink, coupled = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    return lr / correction1, 1 / math.sqrt(correction2), eps, shrink, coupled, beta1, 1 - beta1, beta2, 1 - beta2


def _adam_decoupled(*numbers: float) -> tuple[float, ...]:
    return _adam_numbers(True, *numbers)


def _adam_coupled(*numbers: float) -> tuple[float, ...]:
    return _adam_numbers(False, *numbers)


def _sgd_numbers(lr: float, momentum: float, dampening: float, decay: float) -> tuple[float, ...]:
    return lr, decay, momentum, 1 - dampening


_NUMBERS: dict[Callable[..., tuple[float, ...]], int] = {_adam_decoupled: 7, _adam_coupled: 7, _sgd_numbers: 4}


def _step(
    runtime: Runtime,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    count: int,
    kernel: str,
    names: tuple[str, ...],
    derive: Callable[..., tuple[float, ...]],
    derived_count: int,
    flags: Mapping[str, bool],
) -> Launch | Declined:
    """A step whose inputs are `count` parameters, gradients and states, `names` being what the kernel calls them."""
    kinds = len(names)
    groups = [inputs[i * count : (i + 1) * count] for i in range(kinds)]
    tensors = _specs(inputs)
    if len(tensors) != count * kinds or _too_large(tensors):
        return Declined("a parameter has 2^31 elements or more, or is a number")
    params, grads, *states = ([s for s in g if isinstance(s, Spec)] for g in groups)
    if any(s.dtype.itemsize < 4 or not s.dtype.is_floating_point for group in states for s in group):
        return Declined("optimizer state in half precision")
    if any(not s.dtype.is_floating_point for s in (*params, *grads)):
        return Declined("parameters or gradients that are not floating point")
    # Outputs are the parameters and then each state.
    written = [i for i in range(kinds) if i != 1]
    settle = _settle(
        runtime,
        [(kind * count + i, n * count + i) for n, kind in enumerate(written) for i in range(count)],
        inputs,
        outputs,
    )
    first_workspace = len(inputs) + len(outputs)
    dense, workspace, given = _dense(runtime, {count + i: s for i, s in enumerate(grads)}, first_workspace)
    total = first_workspace + len(workspace)
    steps: list[Step] = [settle, *dense]
    keys = [tuple(s.dtype for s in slot) for slot in zip(params, grads, *states, strict=True)]
    for key, members in _by_dtype(keys).items():
        wide = dtypes.float64 if dtypes.float64 in key else dtypes.float32
        real = real_type(wide)
        operands = [
            Operand(name, _storage(d), read_only=i == 1) for i, (name, d) in enumerate(zip(names, key, strict=True))
        ]
        defined = definitions(runtime, operands, real) | {
            "PARAMETER_DTYPE": key[0].name,
            "GRADIENT_DTYPE": key[1].name,
            "STATE_DTYPE": key[2].name if kinds > 2 else "float32",
            **flags,
        }
        slots = []
        for i in members:
            given_to: list[Parameter] = []
            for kind in range(kinds):
                if kind == 1:
                    given_to += _with_offset(given[count + i])
                else:
                    given_to.append(Tensor(len(inputs) + written.index(kind) * count + i))
            slots.append((tuple(given_to), params[i].size))
        kind_of_number: ScalarType = "double" if real == "double" else "float"
        numbers: list[Parameter] = [Number(total + i, kind_of_number) for i in range(derived_count)]
        for batch in batches(runtime, kinds, slots):
            group = int(defined["GROUP"])
            steps.append(
                runtime.launch(
                    kernel, kernel, defined, [*batch.parameters, *numbers], (batch.chunks * group,), (group,)
                )
            )
    run = _derived(steps, derive, count * kinds, total)
    return LaunchSequence(kernel, (run,), tuple(workspace))


def _adam(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Launch | Declined:
    if params.get("amsgrad"):
        return Declined("the kernel has no AMSGrad")
    derive = _adam_decoupled if params["decoupled"] else _adam_coupled
    return _step(runtime, inputs, outputs, params["count"], "adam_step", ("p", "g", "m", "v"), derive, 9, {})


def _sgd(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Launch | Declined:
    count = params["count"]
    momentum = len(_specs(inputs)) == 3 * count
    flags = {"MOMENTUM": momentum, "NESTEROV": bool(params["nesterov"])}
    names = ("p", "g", "b") if momentum else ("p", "g")
    return _step(runtime, inputs, outputs, count, "sgd_step", names, _sgd_numbers, 4, flags)


def _scale_all(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    tensors = _specs(inputs)
    if len(tensors) != len(inputs) or _too_large(tensors):
        return Declined("a tensor has 2^31 elements or more, or is a number")
    factor = tensors[-1]
    if any(not s.dtype.is_floating_point for s in tensors):
        return Declined("tensors that are not floating point")
    count = len(outputs)
    steps: list[Step] = [_settle(runtime, [(i, i) for i in range(count)], inputs, outputs)]
    for key, members in _by_dtype([(s.dtype,) for s in outputs]).items():
        real = real_type(key[0])
        defined = definitions(runtime, [Operand("x", _storage(key[0]))], real) | {
            "DTYPE": key[0].name,
            "FACTOR_DTYPE": factor.dtype.name,
        }
        group = int(defined["GROUP"])
        slots = [((Tensor(len(inputs) + i),), outputs[i].size) for i in members]
        for batch in batches(runtime, 1, slots):
            parameters = [*batch.parameters, Tensor(count)]
            steps.append(
                runtime.launch("scale_all", "scale_all", defined, parameters, (batch.chunks * group,), (group,))
            )
    return LaunchSequence("scale_all", steps)


def _sum_of_squares(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    tensors = _specs(inputs)
    if len(tensors) != len(inputs) or _too_large(tensors):
        return Declined("a tensor has 2^31 elements or more, or is a number")
    if any(not s.dtype.is_floating_point for s in tensors):
        return Declined("tensors that are not floating point")
    first_workspace = len(inputs) + 1
    # The partial sums come first among the workspaces.
    dense, workspace, given = _dense(runtime, dict(enumerate(tensors)), first_workspace + 1)
    steps: list[Step] = list(dense)
    place = 0
    defined: dict[str, str | int | bool] = {}
    for key, members in _by_dtype([(s.dtype,) for s in tensors]).items():
        real = real_type(key[0])
        defined = definitions(runtime, [Operand("x", _storage(key[0]), read_only=True)], real) | {"DTYPE": key[0].name}
        group = int(defined["GROUP"])
        slots = [(_with_offset(given[i]), tensors[i].size) for i in members]
        for batch in batches(runtime, 1, slots):
            parameters = [*batch.parameters, Workspace(first_workspace), Constant(place, "uint")]
            steps.append(
                runtime.launch(
                    "squares_of_chunks",
                    "sum_of_squares",
                    defined,
                    parameters,
                    (batch.chunks * group,),
                    (group,),
                    kernel="squares_of_chunks",
                )
            )
            place += batch.chunks
    group = int(defined["GROUP"])
    steps.append(
        runtime.launch(
            "total_of_chunks",
            "sum_of_squares",
            defined,
            [Workspace(first_workspace), Tensor(len(inputs)), Constant(place, "uint")],
            (group,),
            (group,),
            kernel="total_of_chunks",
        )
    )
    return LaunchSequence("sum_of_squares", steps, (place * 4, *workspace))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "adam_step": _adam,
    "sgd_step": _sgd,
    "scale_all": _scale_all,
    "sum_of_squares": _sum_of_squares,
}
