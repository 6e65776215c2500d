"""Check of a user's changed kernel: by the conformance kit, and by a timing against the shipped kernel.

The ops that use a kernel file are found by lowering their samples without building programs.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core import dispatch
from polyhal.hal.core.kernels.library import KernelLibrary, RunsGroups
from polyhal.hal.core.kernels.prebuild import library
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.schema import Specs
from polyhal.hal.protocol import InputSpec
from polyhal.hal.system.reference.op_calls import OpCall, specs_of
from polyhal.hal.testing.certification.runner import Outcome, verify
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.sample_calls import runnable_calls
from polyhal.hal.testing.kit.scope import Scope, primary
from polyhal.hal.testing.tuning.comparison import TWINS, compare, interleaved
from polyhal.hal.testing.tuning.workloads import Runner, workloads

_BARRIER = re.compile(r"\b(work_group_)?barrier\s*\(")
_MAX_TIMED_OPS = 6
"""Maximum number of timed ops; a header may be used by a hundred ops."""


@dataclass(frozen=True, slots=True)
class KernelTiming:
    """Seconds of one call with the shipped and with the changed kernel, measured alternately (see `comparison`)."""

    call: str
    shipped: float
    changed: float
    speedup: float
    """Speedup of the changed kernel; 1.0 if no difference was found (see `comparison`)."""


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """Result of the check of a changed kernel."""

    ops: tuple[str, ...]
    passed: int
    problem: str
    """First failure, in one line; empty if there is none."""
    detail: str = ""
    timings: tuple[KernelTiming, ...] = ()

    @property
    def ratio(self) -> float:
        """Return the median speedup over the shipped kernel; 0 if it was not timed."""
        return statistics.median([t.speedup for t in self.timings]) if self.timings else 0.0


def ops_by_kernel(device: Device) -> dict[str, list[str]]:
    """Return, for each kernel file of a device, including headers, the ops whose samples use it, without building programs.

    Raises UnsupportedOpError if the backend exposes no kernels.
    """
    kernels = library(device)
    ops: dict[str, set[str]] = defaultdict(set)
    claimed: set[str] = set()

    def refuse(kernel: str, digest: str) -> bool:
        claimed.add(kernel)
        return False

    before, kernels.build_filter = kernels.build_filter, refuse
    try:
        for op in OPS:
            claimed.clear()
            lower_samples(device, op)
            for kernel in claimed:
                for part in kernels.parts(kernel):
                    ops[part].add(op.name)
    finally:
        kernels.build_filter = before
    return {name: sorted(ops[name]) for name in kernels.names()}


def lower_samples(device: Device, op: OpDef) -> None:
    """Lower the samples of an op in its primary dtype, and calls with transposed views of the same shapes."""
    for call in _calls(device, op):
        _lower(device, call, specs_of(call.values))
        _lower(device, call, tuple(_transposed(s) for s in specs_of(call.values)))


def check(device: Device, name: str, progress: Callable[[Outcome], None] | None = None) -> KernelCheck:
    """Run the conformance kit with the changed file `name`, and time it against the shipped one if it passes.

    Raises UnsupportedOpError and FileNotFoundError.
    """
    kernels = library(device)
    kernels.shipped(name)
    ops = ops_by_kernel(device)[name]
    passed = 0
    for op in ops:
        with _in_force(kernels, name):
            report = verify(device, scope=Scope(), only=f"forward/{op}/*", progress=progress)
        passed += report.passed
        for outcome in report.failed:
            with _shipped(kernels):
                before = verify(device, scope=Scope(), only=outcome.id)
            if before.ok:
                return KernelCheck(tuple(ops), passed, _problem(outcome), outcome.problem)
    problem = _problem_in_groups(device, kernels, name, ops)
    if problem:
        return KernelCheck(tuple(ops), passed, problem.partition("\n")[0], problem)
    return KernelCheck(tuple(ops), passed, "", timings=tuple(_timings(device, kernels, name, ops)))


def _problem_in_groups(device: Device, kernels: KernelLibrary, name: str, ops: Sequence[str]) -> str:
    """Return the first failure on a processor that runs a kernel like a GPU, unless the shipped kernel also fails.

    CPU kernels have one work-item per group, so they do not cover barriers or group reductions.
    """
    backend = device.backend
    if device.type is not DeviceType.CPU or not isinstance(backend, RunsGroups):
        return ""
    if not any(_BARRIER.search(kernels.shipped(part)) for part in kernels.parts(name)):
        return ""
    for op in ops:
        only = f"forward/{op}/{(primary(OPS[op]) or dtypes.float32).name}"
        with backend.in_groups():
            with _in_force(kernels, name):
                report = verify(device, scope=Scope(), only=only)
            for outcome in report.failed:
                with _shipped(kernels):
                    if verify(device, scope=Scope(), only=outcome.id).ok:
                        return f"with several work-items per group, as on a GPU: {_problem(outcome)}\n{outcome.problem}"
    return ""


def build_variants(device: Device, name: str, ops: list[str]) -> None:
    """Build the programs of a file that the samples of `ops` use in their primary dtype."""
    kernels = library(device)
    before, kernels.build_filter = kernels.build_filter, lambda kernel, digest: kernel == name
    try:
        for op in ops:
            for call in _calls(device, OPS[op]):
                _lower(device, call, specs_of(call.values))
    finally:
        kernels.build_filter = before


def _problem(outcome: Outcome) -> str:
    if isinstance(outcome.error, KernelBuildError):
        return f"it does not build: {outcome.error.gist}"
    return f"{outcome.id}: {outcome.problem.splitlines()[0]}"


def _calls(device: Device, op: OpDef) -> list[OpCall]:
    """Return the samples of an op in its primary dtype without empty arrays, which reach the backend."""
    calls = runnable_calls(device, op, primary(op), Scope())
    return [c for c in calls if c.computes and all(v.size for v in c.values if isinstance(v, np.ndarray))]


def _lower(device: Device, call: OpCall, specs: Specs) -> None:
    """Lower a call like the planner."""
    params = dict(call.params)
    outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(call.op, specs, params))  # may normalize parameters
    values = settings.among(call.op.settings, device.capabilities.settings)
    device.backend.lower(call.op.name, specs, outputs, {**params, **values})  # type: ignore[attr-defined]


def _transposed(spec: InputSpec | None) -> InputSpec | None:
    """Return the spec of a transposed view of that shape; unchanged below two axes."""
    if not isinstance(spec, Spec) or spec.ndim < 2:
        return spec
    *outer, rows, columns = spec.shape
    dense = contiguous(spec.dtype, (*outer, columns, rows)).strides
    return Spec(spec.dtype, spec.shape, (*dense[:-2], dense[-1], dense[-2]), spec.aligned)


def _timings(device: Device, kernels: KernelLibrary, name: str, ops: list[str]) -> Iterator[KernelTiming]:
    typical = {w.op: w.call() for w in reversed(workloads(device.type))}
    timed = sorted(ops, key=lambda op: op not in typical)[:_MAX_TIMED_OPS]
    for op in timed:
        call = typical.get(op) or max(_calls(device, OPS[op]), key=lambda c: c.elements)
        runners = []
        with strict():
            for context in (_shipped, lambda k: _in_force(k, name)) * TWINS:
                with context(kernels):
                    runners.append(Runner(isolated(device), call))
                    runners[-1].run()
            samples = interleaved(runners)
        result = compare(samples[::2], samples[1::2])
        yield KernelTiming(str(call).partition(" [")[0], result.before, result.after, result.speedup)


@contextmanager
def _in_force(kernels: KernelLibrary, name: str) -> Iterator[None]:
    """Use the changed file inside the block, even if it is disabled."""
    kernels.overrides.under_test = frozenset({name})
    kernels.reload()
    try:
        yield
    finally:
        kernels.overrides.under_test = frozenset()
        kernels.reload()


@contextmanager
def _shipped(kernels: KernelLibrary) -> Iterator[None]:
    """Use shipped files only inside the block."""
    kernels.overrides.shipped_only = True
    kernels.reload()
    try:
        yield
    finally:
        kernels.overrides.shipped_only = False
        kernels.reload()
