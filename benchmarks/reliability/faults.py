"""Faults of a device: trainings on the simulated GPU, hit once by each fault at each point, and their outcomes.

A fault must become a typed error that names device and cause, or do no harm. Afterwards the same process continues: it
repeats the step, or loads its last checkpoint, on a fresh device if the old one is lost. The final weights equal the
weights of a run without faults, bit for bit, and nothing is leaked: memory, host buffers, devices, threads.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple
from unittest import mock

import polyhal as ph
from benchmarks.reliability.fault_points import FaultObserver, FaultPoint, sampled
from benchmarks.reliability.trainings import RECIPES, STEPS, Recipe, Training, weights_of
from polyhal.backends.sim.backend import SimBackend
from polyhal.backends.sim.faults import FaultKind
from polyhal.hal.errors import (
    DeviceLostError,
    DeviceTimeoutError,
    KernelBuildError,
    OutOfMemoryError,
    PolyhalError,
    TransferError,
    WrongResultError,
)
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP
from polyhal.hal.system.discovery.registry import Registry

_DEVICE = "sim:teaching,memory=64MiB"
_PATIENCE = 100.0
"""Seconds after which a training counts as hung, on a machine that also runs other programs."""
_END_OF_THREADS = 5.0
"""Seconds that the threads of a closed device may take to end."""
_MOST_ERRORS = 4
"""Errors of one fault, after which a training does not recover."""

_ERRORS: dict[FaultKind, tuple[type[PolyhalError], ...]] = {
    FaultKind.ALLOCATION_FAILURE: (OutOfMemoryError,),
    FaultKind.BUILD_FAILURE: (KernelBuildError,),
    FaultKind.DEVICE_LOST: (DeviceLostError,),
    FaultKind.STALLED_QUEUE: (DeviceTimeoutError, DeviceLostError),
    FaultKind.CORRUPT_TRANSFER: (TransferError,),
    FaultKind.SLOW_LINK: (),
    FaultKind.LATE_CALLBACK: (),
    FaultKind.WRONG_RESULT: (),
}
"""Outcomes that each fault may have; none if it only slows the device down, or if no device would detect it."""


@dataclass(frozen=True, slots=True)
class FaultsResult:
    """Counts of a campaign."""

    injected: int
    unharmed: int
    """Runs in which no error was raised, and none was due."""
    recovered: int
    """Runs that continued after an error, to the weights of a run without faults."""
    undetectable: int
    """Wrong results of a kernel that changed the weights, in runs without checks."""
    detected: int
    """Wrong results of a kernel that POLYHAL_CHECK=reference has found."""
    lost: int
    """Runs that ended with other weights, or did not continue."""
    leaks: int
    trainings: dict[str, dict[str, int]]
    """By training: points at which it can be hit, and how many of them were."""
    outcomes: dict[str, dict[str, int]]
    """By kind of fault."""
    findings: tuple[str, ...]
    """Findings: outcomes that must not occur."""


class _Run(NamedTuple):
    """Outcome of one training."""

    errors: list[tuple[type[PolyhalError], str]]
    weights: bytes
    leaks: list[str]
    struck: bool
    problem: str = ""


@dataclass(slots=True)
class _Campaign:
    trainings: dict[str, dict[str, int]] = field(default_factory=dict)
    outcomes: dict[FaultKind, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    leaks: int = 0

    def add(self, where: str, point: FaultPoint, outcome: str) -> None:
        self.outcomes.setdefault(point.kind, Counter())[outcome] += 1
        if outcome not in _GOOD:
            self.findings.append(f"{where}, {point.kind} at {point.at} ({point.name}): {outcome}")

    def total(self, outcome: str) -> int:
        return sum(counts[outcome] for counts in self.outcomes.values())


_GOOD = ("unharmed", "recovered", "undetectable", "detected")


def faults(
    recipes: tuple[str, ...] = tuple(RECIPES),
    *,
    exhaustive: tuple[str, ...] = ("mlp",),
    each: int = 20,
    checked: int = 20,
    seed: int = 0,
    progress: Any = None,
) -> FaultsResult:
    """Hit trainings at all points if they are `exhaustive`, else at `each` points of each kind; with checks at
    `checked` points."""
    campaign = _Campaign()
    # Kernels that do not build are errors; by default they are replaced by slower ones that round differently.
    with mock.patch.dict(os.environ, POLYHAL_STRICT="1"):
        for name in recipes:
            for captured in (False, True):
                where = f"{name}, {'captured' if captured else 'eager'}"
                limit = None if name in exhaustive else each
                _hit(campaign, where, RECIPES[name], captured, limit, seed, progress)
                _hit_checked(campaign, where, RECIPES[name], captured, checked, seed, progress)
    outcomes = {str(kind): dict(sorted(counts.items())) for kind, counts in campaign.outcomes.items()}
    total = sum(sum(counts.values()) for counts in outcomes.values())
    good = [campaign.total(outcome) for outcome in _GOOD]
    return FaultsResult(
        total, *good, total - sum(good), campaign.leaks, campaign.trainings, outcomes, tuple(campaign.findings)
    )


def _hit(
    campaign: _Campaign, where: str, recipe: Recipe, captured: bool, each: int | None, seed: int, progress: Any
) -> None:
    clean, points = _observe(recipe, captured)
    chosen = sampled(points, each, seed)
    campaign.trainings[where] = {"points": len(points), "hit": len(chosen)}
    for point in chosen:
        run = _run(recipe, captured, point, may_repeat=recipe.repeatable)
        campaign.leaks += len(run.leaks)
        campaign.findings += [f"{where}, {point.kind} at {point.at}: leak: {leak}" for leak in run.leaks]
        campaign.add(where, point, _judge(point, run, clean))
        if progress is not None:
            progress(where, point)


def _judge(point: FaultPoint, run: _Run, clean: bytes) -> str:
    """Return the outcome of a fault, as one word if it is permitted."""
    expected = _ERRORS[point.kind]
    if run.problem:
        return run.problem
    if not run.struck:
        return "it did not strike"
    for error, text in run.errors:
        if error not in expected:
            return f"{error.__name__} instead: {text}"
        if problem := _says_too_little(text):
            return f"the error does not say {problem}: {text}"
    if point.kind is FaultKind.WRONG_RESULT and run.weights != clean:
        return "undetectable"
    if run.weights != clean:
        return f"other weights, after {[text for _, text in run.errors]}"
    if run.errors:
        return "recovered"
    # The pool empties itself and tries again, and a kernel that does not build is replaced by others.
    may_survive = not expected or point.kind in (FaultKind.ALLOCATION_FAILURE, FaultKind.BUILD_FAILURE)
    return "unharmed" if may_survive else "no error"


def _says_too_little(text: str) -> str:
    """Return the facts that an error does not name; empty if it names all."""
    if _DEVICE not in text:
        return "on which device"
    named = text.startswith("[") or "transfer of" in text or "command" in text
    return "" if named else "which op or command"


def _hit_checked(
    campaign: _Campaign, where: str, recipe: Recipe, captured: bool, count: int, seed: int, progress: Any
) -> None:
    """Let kernels write wrong results while POLYHAL_CHECK=reference looks."""
    own = {p.name for p in _observe(recipe, captured)[1] if p.kind is FaultKind.WRONG_RESULT}
    clean, points = _observe(recipe, captured, check=True)
    chosen = sampled([p for p in points if p.kind is FaultKind.WRONG_RESULT], count, seed)
    campaign.trainings[where]["hit with the check"] = len(chosen)
    for point in chosen:
        run = _run(recipe, captured, point, check=True, may_repeat=False)
        found = any(error is WrongResultError for error, _ in run.errors)
        # The check launches copies itself, to read operands that are not contiguous. A kernel that the training never
        # launches without the check is such a copy, not a result of the program; any other fault that stays undetected
        # is a finding.
        of_check = point.name not in own
        harmless = of_check and run.struck and not run.problem and not run.errors and run.weights == clean
        missed = "unharmed" if harmless else f"not found by the check ({run.problem or 'no error'})"
        campaign.add(where, point, "detected" if found else missed)
        if progress is not None:
            progress(where, point)


# --- one training ---------------------------------------------------------------------------------------------------


def _observe(recipe: Recipe, captured: bool, *, check: bool = False) -> tuple[bytes, list[FaultPoint]]:
    """Train without faults. Returns the weights, and the points that can be hit."""
    _run(recipe, captured, None, check=check, may_repeat=False)  # objects that the process creates once
    observer = FaultObserver()
    run = _run(recipe, captured, None, check=check, may_repeat=False, observer=observer)
    if run.errors or run.problem or run.leaks:
        raise RuntimeError(f"a training without faults: {run}")
    return run.weights, observer.points


def _run(
    recipe: Recipe,
    captured: bool,
    point: FaultPoint | None,
    *,
    may_repeat: bool,
    check: bool = False,
    observer: FaultObserver | None = None,
) -> _Run:
    """Train on a separate device with at most one fault, and recover from it as a program would."""
    threads = set(threading.enumerate())
    devices = Registry([EntryPoint("sim", "polyhal.backends.sim", ENTRY_POINT_GROUP)])
    first = devices.open(_DEVICE)
    backend = _backend(first)
    if observer is not None:
        backend.gpu.faults = observer
    if point is not None:
        _inject(backend, point)
    program = _Program(recipe, devices, captured, may_repeat)
    with ph.check("reference") if check else nullcontext():
        program.run()
    struck = bool(backend.faults.strikes)
    weights = b"" if program.state is None else weights_of(program.state)
    errors, problem = program.errors, program.problem
    del program
    leaks = list(_left_on(devices.open(_DEVICE)))
    gone = [weakref.ref(first), weakref.ref(devices.open(_DEVICE))]
    del devices, first, backend, observer
    leaks += _left_in_process(gone, threads)
    return _Run(errors, weights, leaks, struck, problem)


def _inject(backend: SimBackend, point: FaultPoint) -> None:
    faults = backend.faults
    if point.kind is FaultKind.ALLOCATION_FAILURE:
        faults.inject(point.kind, at=point.at)
        faults.inject(point.kind, at=point.at + 1)  # the pool tries again
    elif point.kind is FaultKind.LATE_CALLBACK:
        faults.inject(point.kind, at=point.at, seconds=0.002)
    else:
        faults.inject(point.kind, at=point.at)


class _Program:
    """A program that survives errors: it trains, keeps a checkpoint, and continues after an error."""

    def __init__(self, recipe: Recipe, devices: Registry, captured: bool, may_repeat: bool) -> None:
        self.errors: list[tuple[type[PolyhalError], str]] = []
        self.problem = ""
        self.state: dict[str, Any] | None = None
        self._recipe = recipe
        self._devices = devices
        self._captured = captured
        self._may_repeat = may_repeat
        self._training: Training | None = None
        self._must_load = False

    def run(self) -> None:
        """Train to the end, on a separate thread, so that a deadlock is detected."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        thread.join(_PATIENCE)
        if thread.is_alive():
            self.problem = "it hangs"

    def _run(self) -> None:
        while len(self.errors) < _MOST_ERRORS:
            try:
                self._train()
            except PolyhalError as error:
                self.errors.append((type(error), str(error)))
                self._recover(error)
            except BaseException as error:
                self.problem = f"{type(error).__name__}: {error}"
                return
            else:
                return
        self.problem = f"it does not recover: {self.errors[-1][1]}"

    def _train(self) -> None:
        if self._training is None:
            self._training = Training(self._recipe, self._devices.open(_DEVICE), captured=self._captured)
            self._must_load = self.state is not None
        training = self._training
        if self._must_load and self.state is not None:
            training.load(self.state)
        self._must_load = False
        while True:
            state = training.checkpoint()
            self.state = state
            if training.done == STEPS:
                return
            training.step()

    def _recover(self, error: PolyhalError) -> None:
        """Choose the state that the next attempt begins with."""
        if self._training is None:
            return
        lost = self._training.device.is_lost
        if lost or self.state is None:
            self._training = None
        elif not (self._may_repeat and isinstance(error, (OutOfMemoryError, KernelBuildError))):
            self._must_load = True


def _backend(device: ph.Device) -> SimBackend:
    assert isinstance(device.backend, SimBackend)
    return device.backend


# --- leaks ----------------------------------------------------------------------------------------------------------


def _left_on(device: ph.Device) -> Iterator[str]:
    """Yield the resources that a training leaked on its device."""
    gc.collect()
    backend = _backend(device)
    backend.faults.clear()
    device.empty_cache()
    stats = device.memory_stats()
    live, pinned = backend.gpu.memory.live(), len(backend.gpu.pinned_memory)
    if stats.used:
        yield f"{stats.used} bytes of the pool"
    if stats.reserved or live:
        yield f"{stats.reserved} bytes reserved, {len(live)} allocations of the device"
    if pinned > 1:  # the ring buffer
        yield f"{pinned} buffers of the host are pinned"


def _left_in_process(devices: list[weakref.ref[ph.Device]], threads: set[threading.Thread]) -> Iterator[str]:
    """Yield devices and threads that outlive a run."""
    gc.collect()
    if any(ref() is not None for ref in devices):
        yield "a device that nothing uses"
    deadline = time.monotonic() + _END_OF_THREADS
    while left := [t.name for t in threading.enumerate() if t not in threads]:
        if time.monotonic() > deadline:
            yield f"threads {left}"
            return
        time.sleep(0.001)


def lines(result: FaultsResult) -> Iterator[str]:
    """Return the result as text."""
    yield (
        f"{result.injected:,} faults: {result.unharmed:,} unharmed, {result.recovered:,} recovered, {result.detected:,} "
        f"wrong results detected, {result.undetectable:,} not detectable without checks, {result.leaks} leaks, "
        f"{len(result.findings)} findings"
    )
    for kind, counts in result.outcomes.items():
        yield f"  {kind}: {', '.join(f'{outcome} {n:,}' for outcome, n in counts.items())}"
    yield from result.findings


if __name__ == "__main__":
    begin = time.perf_counter()
    number = int((sys.argv[1:] or ["20"])[0])
    chosen = tuple(sys.argv[2:]) or tuple(RECIPES)
    for text in lines(faults(chosen, exhaustive=(), each=number, checked=number)):
        print(text)
    print(f"{time.perf_counter() - begin:.0f} s")
