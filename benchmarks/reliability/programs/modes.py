"""The ways in which a device runs programs: eagerly, captured, through PyTorch's door, and two programs at once."""

from __future__ import annotations

import functools
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

import polyhal.torch
from benchmarks.reliability.programs.difference import Difference
from benchmarks.reliability.programs.execute import Observation, Raised, Session, run
from benchmarks.reliability.programs.forms import forward_only, with_parameters
from benchmarks.reliability.programs.judge import Truth, differences
from benchmarks.reliability.programs.known import explained
from benchmarks.reliability.programs.libraries import Library, Polyhal, PyTorch
from benchmarks.reliability.programs.program import Program
from polyhal.hal.errors import CaptureError, FallbackRefusedError, UnsupportedDTypeError, UnsupportedOpError

CALLS = 3
"""Calls of a captured program: one that runs eagerly, one that is recorded, one that checks the recording or replays."""
REFUSALS = (CaptureError, FallbackRefusedError, UnsupportedDTypeError, UnsupportedOpError)
"""Errors by which a device or a way of running says that it does not take a program."""
_MADE_IN_CHECKPOINT = re.compile(r"checkpoint\(lambda.*torch\.(tensor|arange|eye|ones|zeros)\(")
_DEVICE_REFUSES = ("on this device", "only being recorded")


class Outcome(NamedTuple):
    """The result of a program in one mode."""

    program: Program
    """The program in the form in which it ran."""
    differences: Sequence[Difference] = ()
    refused: str = ""
    """The error by which the program was refused; empty if it ran."""

    def findings(self) -> list[Difference]:
        """Return the differences that no known one explains."""
        return [d for d in self.differences if not explained(self.program, d)]

    def known(self) -> set[str]:
        """Return the names of the known differences that the program shows."""
        return {explained(self.program, d) for d in self.differences} - {""}


Mode = Callable[[Program, polyhal.Device], Outcome]


def eager(program: Program, device: polyhal.Device) -> Outcome:
    """Run op by op."""
    return _judged(_truth(program), run(program, Polyhal(device)))


def captured(program: Program, device: polyhal.Device) -> Outcome:
    """Run as one function under `polyhal.jit`."""
    return _as_function(program, Polyhal(device), polyhal.jit)


def captured_forward(program: Program, device: polyhal.Device) -> Outcome:
    """Run the forward pass as one function under `polyhal.jit`, the backward pass outside."""
    return _as_function(forward_only(program), Polyhal(device), polyhal.jit)


def torch_eager(program: Program, device: polyhal.Device) -> Outcome:
    """Run by PyTorch, on `torch.device("polyhal")`."""
    _choose(device)
    return _judged(_truth(program), run(program, PyTorch("polyhal")))


def torch_recorded(program: Program, device: polyhal.Device) -> Outcome:
    """Run by PyTorch on the device, as one function under `polyhal.torch.jit`."""
    _choose(device)
    changed = with_parameters(program)
    outcome = _as_function(
        changed, PyTorch("polyhal"), functools.partial(polyhal.torch.jit, strict=True), detached=True
    )
    return _without_those_of(outcome, lambda: _as_function(changed, PyTorch(), lambda f: f, detached=True))


def torch_compiled(program: Program, device: polyhal.Device) -> Outcome:
    """Run by PyTorch on the device, the forward pass as one function under `torch.compile(backend="polyhal")`."""
    if any(_MADE_IN_CHECKPOINT.search(s.text) for s in program.statements):
        return Outcome(program, refused="PyTorch's compiler makes tensors inside of checkpoints on the CPU")
    _choose(device)
    torch._dynamo.reset()
    forward = forward_only(program)
    # Without the history of results that no gradient is taken of: PyTorch's compiler makes backward passes for them, too.
    outcome = _as_function(forward, PyTorch("polyhal"), lambda f: torch.compile(f, backend="polyhal"), detached=True)

    def plain() -> Outcome:
        torch._dynamo.reset()
        return _as_function(forward, PyTorch(), lambda f: torch.compile(f, backend="aot_eager"), detached=True)

    return _without_those_of(outcome, plain)


def _without_those_of(outcome: Outcome, plain: Callable[[], Outcome]) -> Outcome:
    """Drop differences that PyTorch has on the CPU as well when it runs the program in the same form.

    As one function it takes some views for leaves after writes to their bases, and its compiler loses some aliases.
    """
    if not outcome.differences:
        return outcome
    theirs = {(d.call, d.name, d.kind) for d in plain().differences}
    left = [d for d in outcome.differences if (d.call, d.name, d.kind) not in theirs]
    if left:
        return outcome._replace(differences=left)
    return Outcome(outcome.program, refused="PyTorch differs from itself in this form")


def together(programs: Sequence[Program], device: polyhal.Device) -> list[Outcome]:
    """Run programs eagerly at the same time, each in a thread of its own."""
    truths = [_truth(p) for p in programs]
    seen: list[Sequence[Observation]] = [()] * len(programs)

    def one(number: int) -> None:
        seen[number] = run(programs[number], Polyhal(device))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(programs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [_judged(truth, o) for truth, o in zip(truths, seen, strict=True)]


def _with_distinct_parameters(mode: Mode) -> Mode:
    """Refuse programs whose optimizer is made with a parameter twice, an error here, and a warning of PyTorch."""

    @functools.wraps(mode)
    def run_if_distinct(program: Program, device: polyhal.Device) -> Outcome:
        try:
            return mode(program, device)
        except ValueError as error:
            if not str(error).endswith("is given twice"):
                raise
            return Outcome(program, refused=str(error))

    return run_if_distinct


MODES: dict[str, Mode] = {
    "eager": _with_distinct_parameters(eager),
    "captured": _with_distinct_parameters(captured),
    "captured forward": captured_forward,
    "torch eager": torch_eager,
    "torch recorded": torch_recorded,
    "torch compiled": torch_compiled,
}


@functools.lru_cache(2)
def _truth(program: Program) -> Truth:
    """Return PyTorch's runs of one call, for all modes that make one."""
    return Truth(program)


def _choose(device: polyhal.Device) -> None:
    """Make PyTorch's device this one. It stays the device of the process."""
    polyhal.set_default_device(device)


def _judged(truth: Truth, seen: Sequence[Observation], *, as_function: bool = False) -> Outcome:
    ends = (o.raised[o.end] for o in seen if o.end is not None)
    refused = next((e.message for e in ends if _is_refusal(e)), "")
    found = [] if refused else differences(truth, seen, captured=as_function)
    return Outcome(truth.program, found, refused)


def _is_refusal(error: Raised) -> bool:
    """Return whether an error says that the device or the mode does not take the program."""
    named = error.type in ("CaptureError", "RefusedError", "FallbackRefusedError", "UnsupportedOpError")
    return named or any(text in error.message for text in _DEVICE_REFUSES)


def _as_function(
    program: Program, library: Library, transform: Callable[..., Callable[..., object]], *, detached: bool = False
) -> Outcome:
    """Run a program's calls by a transformed function. One that PyTorch refuses is not run: there is nothing to compare."""
    plain = replace(
        program, statements=tuple(s for s in program.statements if not s.is_mistake)
    ).without_unused_leaves()
    truth = Truth(plain, CALLS)
    if any(o.raised for o in truth.native):
        return Outcome(plain, refused="PyTorch refuses it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(plain, library)
        function = transform(session.function(detached=detached))
        seen = [session.call_function(function, number) for number in range(CALLS)]
    return _judged(truth, seen, as_function=True)
