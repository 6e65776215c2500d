"""Faults planted into Polyhal, to count the programs that it takes to find each: the check of the fuzzer itself."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import polyhal
from benchmarks.reliability.programs.generate import generate
from benchmarks.reliability.programs.modes import MODES
from benchmarks.reliability.programs.program import Program
from polyhal.hal.core import dispatch


class Mutation(NamedTuple):
    """A fault, the mode that shows it, and a function that plants it until the stack is left."""

    name: str
    mode: str
    plant: Callable[[contextlib.ExitStack], None]


class Hunt(NamedTuple):
    """The course of the search for a fault."""

    mode: str
    tried: int
    found: int
    """The number of the program that found it, from 1; 0 if none did."""
    program: Program | None


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)


def _module(name: str) -> Any:
    return importlib.import_module(f"polyhal.{name}")


def _first_gradient_kept(stack: contextlib.ExitStack) -> None:
    sinks = _module("tape.sinks")
    _replace(stack, sinks, "take", lambda g: True)
    _replace(stack, sinks, "is_exclusive", lambda total: True)


def _roll_returns_its_input(stack: contextlib.ExitStack) -> None:
    original = polyhal.roll

    def roll(x: Any, shifts: Any, dims: Any = None) -> Any:
        whole = isinstance(dims, int) and x.shape[dims] and shifts % x.shape[dims] == 0
        return x.reshape(x.shape) if whole else original(x, shifts, dims)

    _replace(stack, polyhal, "roll", roll)


def _write_before_copy(stack: contextlib.ExitStack) -> None:
    interpreter = _module("torch.compiler.interpreter")

    def write(self: Any, node: Any, target: Any, value: Any) -> Any:
        stored = interpreter.filled_to(interpreter.cast(value, target.dtype), target.shape)
        dispatch.thread.executor.overwrite(target, stored)  # at once: views of the target that are copied later see it
        self.writes[node.args[0]] = target
        return target

    _replace(stack, interpreter.Interpreter, "_write", write)


def _no_version_check(stack: contextlib.ExitStack) -> None:
    _replace(stack, _module("tape.tape").GradNode, "_check", lambda self, buffer, version, name: None)


def _wrong_sum_over_broadcast(stack: contextlib.ExitStack) -> None:
    rules = _module("tape.rules")
    original = rules._sum_to

    def sum_to(g: Any, shape: Any) -> Any:
        total = original(g, shape)
        return total * (1 / g.shape[0]) if g.ndim > len(shape) and g.shape[0] > 1 else total  # a mean over new axes

    _replace(stack, rules, "_sum_to", sum_to)


def _offset_of_a_view_of_a_view(stack: contextlib.ExitStack) -> None:
    from polyhal.hal.layout import contiguous
    from polyhal.hal.ops import OPS

    op = OPS["slice"]
    original = op.view

    def view(spec: Any, params: Any) -> Any:
        right = original(spec, params)  # type: ignore[misc]
        if spec.is_contiguous:
            return right
        return right._replace(offset=original(contiguous(spec.dtype, spec.shape), params).offset)  # type: ignore[misc,union-attr]

    _replace(stack, op, "view", view)


def _no_promotion(stack: contextlib.ExitStack) -> None:
    promotion = _module("hal.ops.pointwise.promotion")
    original = promotion.promote

    def promote(a: Any, b: Any) -> Any:
        return a if a.kind == b.kind == "float" else original(a, b)

    _replace(stack, promotion, "promote", promote)


def _nothing_before_replays(stack: contextlib.ExitStack) -> None:
    recorder = _module("hal.compile.capture.recorder").StepRecorder
    _replace(stack, recorder, "on_replay", lambda self, action, undo=None: None)


def _hook_twice(stack: contextlib.ExitStack) -> None:
    engine = [m for m in (_module("tape.sinks"), _module("tape.engine")) if hasattr(m, "run_hooks")]
    for module in engine:
        original = module.run_hooks
        _replace(stack, module, "run_hooks", lambda hooks, g, run=original: run(hooks, run(hooks, g)))


def _live_block_reused(stack: contextlib.ExitStack) -> None:
    from polyhal.hal.core.memory.pool import Pool

    original = Pool.take
    count = 0

    def take(self: Any, size: int) -> Any:
        nonlocal count
        buffer = original(self, size)
        count += 1
        if count % 50 == 0 and size:  # one block in fifty is free although it is in use
            self._free[size].append((buffer.number if hasattr(buffer, "number") else 0, buffer.handle))
        return buffer

    _replace(stack, Pool, "take", take)


MUTATIONS = (
    Mutation("the first gradient of a leaf is kept without a copy", "eager", _first_gradient_kept),
    Mutation("`roll` by a whole length returns a view of its input", "eager", _roll_returns_its_input),
    Mutation("values that were saved and changed go unnoticed", "eager", _no_version_check),
    Mutation("the gradient of a broadcast operand is a mean", "eager", _wrong_sum_over_broadcast),
    Mutation("a slice of a view has the offset of a slice of a whole tensor", "eager", _offset_of_a_view_of_a_view),
    Mutation("float16 and float32 give float16", "eager", _no_promotion),
    Mutation("hooks run twice", "eager", _hook_twice),
    Mutation("one block of memory in fifty is given out twice", "eager", _live_block_reused),
    Mutation("replays do not do what was registered for them", "captured", _nothing_before_replays),
    Mutation("a compiled graph copies to an argument after a later write", "torch compiled", _write_before_copy),
)


@contextlib.contextmanager
def planted(mutation: Mutation, device: polyhal.Device) -> Iterator[None]:
    """Plant a fault in Polyhal, with plans that are made with it."""
    with contextlib.ExitStack() as stack:
        device.plans.clear()
        stack.callback(device.plans.clear)
        mutation.plant(stack)
        yield


def hunt(mutation: Mutation, device: polyhal.Device, programs: int, first: int = 0, seconds: float = 1e9) -> Hunt:
    """Run programs with a fault until one fails that does not without it."""
    mode, begin, tried = MODES[mutation.mode], time.monotonic(), 0
    for seed in range(first, first + programs):
        if time.monotonic() - begin > seconds:
            break
        tried += 1
        program = generate(seed)
        with planted(mutation, device):
            fails = _fails(program, mode, device)
        if fails and not _fails(program, mode, device):
            return Hunt(mutation.mode, tried, tried, program)
    return Hunt(mutation.mode, tried, 0, None)


def _fails(program: Program, mode: Any, device: polyhal.Device) -> bool:
    return bool(mode(program, device).findings())


def hunt_all(seconds: float, device: str = "numpy") -> dict[str, dict[str, Any]]:
    """Look for each fault, for an equal part of the time that is left."""
    found = {}
    end = time.monotonic() + seconds
    for number, mutation in enumerate(MUTATIONS):
        part = (end - time.monotonic()) / (len(MUTATIONS) - number)
        h = hunt(mutation, polyhal.Device(device), 100_000, seconds=part)
        found[mutation.name] = {"mode": h.mode, "tried": h.tried, "found": h.found}
        print(f"{mutation.name}: {f'found by program {h.found}' if h.found else f'not in {h.tried}'}", flush=True)
    return found
