"""The check of a changed kernel: is it as right as the conformance kit asks, and is it faster than the shipped one?

Which ops a kernel file serves is found by lowering their samples without building anything.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.kernels.library import KernelLibrary
from polyhal.hal.kernels.prebuild import library
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.schema import Specs
from polyhal.hal.protocol import InputSpec
from polyhal.hal.settings.state import settings
from polyhal.hal.testing.certification.verification import Outcome, verify
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.scope import Scope, primary
from polyhal.hal.testing.kit.values import Call, runnable, specs_of
from polyhal.hal.testing.tools.workloads import Runner, in_turns, workloads

_ROUNDS = 15
_MOST_TIMED = 6
"""Ops that are timed; a header may serve a hundred."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One call, medians of seconds with the shipped and with the changed kernel, taken in turns."""

    call: str
    shipped: float
    changed: float


@dataclass(frozen=True, slots=True)
class Check:
    """What was found out about a changed kernel."""

    ops: tuple[str, ...]
    passed: int
    problem: str
    """What differs, in a line; empty where nothing does."""
    detail: str = ""
    timings: tuple[Timing, ...] = ()

    @property
    def ratio(self) -> float:
        """The middle of shipped over changed time; 0 where nothing was timed."""
        return statistics.median([t.shipped / t.changed for t in self.timings]) if self.timings else 0.0


def uses(device: Device) -> dict[str, list[str]]:
    """For each kernel file of a device, headers included, the ops whose samples it serves. Builds nothing.

    Raises UnsupportedOpError where the backend shows no kernels.
    """
    kernels = library(device)
    found: dict[str, set[str]] = defaultdict(set)
    asked: set[str] = set()

    def refuse(kernel: str, digest: str) -> bool:
        asked.add(kernel)
        return False

    before, kernels.claim = kernels.claim, refuse
    try:
        for op in OPS:
            asked.clear()
            for call in _calls(device, op):
                _lower(device, call, specs_of(call.values))
                _lower(device, call, tuple(_turned(s) for s in specs_of(call.values)))
            for kernel in asked:
                for part in kernels.parts(kernel):
                    found[part].add(op.name)
    finally:
        kernels.claim = before
    return {name: sorted(found[name]) for name in kernels.names()}


def check(device: Device, name: str, progress: Callable[[Outcome], None] | None = None) -> Check:
    """Hold the changed file `name` to the conformance kit, and time it against the shipped one where it is right.

    Raises UnsupportedOpError and FileNotFoundError.
    """
    kernels = library(device)
    kernels.shipped(name)
    ops = uses(device)[name]
    passed = 0
    for op in ops:
        with _in_force(kernels, name):
            report = verify(device, scope=Scope(), only=f"forward/{op}/*", progress=progress)
        passed += report.passed
        for outcome in report.failed:
            with _shipped(kernels):
                before = verify(device, scope=Scope(), only=outcome.id)
            if before.ok:
                return Check(tuple(ops), passed, _problem(outcome), outcome.problem)
    return Check(tuple(ops), passed, "", timings=tuple(_timings(device, kernels, name, ops)))


def variants(device: Device, name: str, ops: list[str]) -> None:
    """Build the programs of a file that the samples of these ops need in their first dtype."""
    kernels = library(device)
    before, kernels.claim = kernels.claim, lambda kernel, digest: kernel == name
    try:
        for op in ops:
            for call in _calls(device, OPS[op]):
                _lower(device, call, specs_of(call.values))
    finally:
        kernels.claim = before


def _problem(outcome: Outcome) -> str:
    if isinstance(outcome.error, KernelBuildError):
        return f"it does not build: {outcome.error.gist}"
    return f"{outcome.id}: {outcome.problem.splitlines()[0]}"


def _calls(device: Device, op: OpDef) -> list[Call]:
    """The samples of an op in its primary dtype that reach a backend: nothing in them is empty."""
    made = runnable(device, op, primary(op), Scope())
    return [c for c in made if c.computes and all(v.size for v in c.values if isinstance(v, np.ndarray))]


def _lower(device: Device, call: Call, specs: Specs) -> None:
    """Ask for the launch as the planner does."""
    params = dict(call.params)
    outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(call.op, specs, params))  # may normalise parameters
    told = settings.among(call.op.settings, device.capabilities.settings)
    device.backend.lower(call.op.name, specs, outputs, {**params, **told})  # type: ignore[attr-defined]


def _turned(spec: InputSpec | None) -> InputSpec | None:
    """The same shape as a transposed view has it, where there are two axes to exchange."""
    if not isinstance(spec, Spec) or spec.ndim < 2:
        return spec
    *outer, rows, columns = spec.shape
    dense = contiguous(spec.dtype, (*outer, columns, rows)).strides
    return Spec(spec.dtype, spec.shape, (*dense[:-2], dense[-1], dense[-2]), spec.aligned)


def _timings(device: Device, kernels: KernelLibrary, name: str, ops: list[str]) -> Iterator[Timing]:
    typical = {w.op: w.call() for w in reversed(workloads(device.type))}
    chosen = sorted(ops, key=lambda op: op not in typical)[:_MOST_TIMED]
    for op in chosen:
        call = typical.get(op) or max(_calls(device, OPS[op]), key=lambda c: c.elements)
        runners = []
        with strict():
            for context in (_shipped(kernels), _in_force(kernels, name)):
                with context:
                    runners.append(Runner(isolated(device), call))
                    runners[-1].run()
            shipped, changed = (statistics.median(s) for s in in_turns(runners, _ROUNDS))
        yield Timing(str(call).partition(" [")[0], shipped, changed)


@contextmanager
def _in_force(kernels: KernelLibrary, name: str) -> Iterator[None]:
    """Use the changed file inside the block, whatever was said about it."""
    kernels.overrides.trial = frozenset({name})
    kernels.forget()
    try:
        yield
    finally:
        kernels.overrides.trial = frozenset()
        kernels.forget()


@contextmanager
def _shipped(kernels: KernelLibrary) -> Iterator[None]:
    """Use no changed file inside the block."""
    kernels.overrides.shipped_only = True
    kernels.forget()
    try:
        yield
    finally:
        kernels.overrides.shipped_only = False
        kernels.forget()
