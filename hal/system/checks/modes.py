"""`polyhal.check`: enabling of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.bounds import BOUNDS
from polyhal.hal.core.dispatch.observer import Observer
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import message
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.system.checks.finite import FiniteCheck
from polyhal.hal.system.checks.gradients import GradientCheck
from polyhal.hal.system.checks.reference import ReferenceCheck
from polyhal.hal.system.checks.scoped import ScopedExecutor, scoped
from polyhal.hal.system.checks.watchdog import started


@top_level
def check(*modes: str) -> AbstractContextManager[None]:
    """Check every launch inside the block: `with polyhal.check("nan", "reference"): step(x, y)`.

    - `nan` raises NonFiniteError at the first op whose result has a NaN, or an infinity that the program did not write.
    - `bounds` raises IndexError for an index or a label out of range, on every device.
    - `reference` compares every result with the op's NumPy reference in float64, by the error bound that the conformance kit
      derives, and raises WrongResultError at the first result outside it.
    - `gradients` raises AutogradError if an op writes to a gradient that another op of a backward pass has yet to read.
    - `all` enables all of them. `"nan,bounds"` enables two.

    The error names the op, the module and the user's line; in a backward pass, the op is the differentiated one. Ops of
    all threads are checked; modules are only named in this thread. Captured steps run call by call inside the block;
    after an error within one, its state is partly updated. Checks wait for the device: programs run many times slower.
    `POLYHAL_CHECK=nan,bounds` in the environment checks a whole program. Raises ValueError for other modes, and
    CaptureError while a step is recorded.

    >>> with polyhal.check("nan"):
    ...     round(polyhal.tensor([4.0]).log().sqrt().item(), 4)
    1.1774
    """
    names = [name.strip() for mode in modes for name in mode.split(",")]
    unknown = [name for name in names if name not in (*env.CHECKS, "all")]
    if unknown or not names:
        problem = f"got {unknown[0]!r}" if unknown else "got no check"
        raise ValueError(message("check", problem, expected=f"{', '.join(env.CHECKS)} or all"))
    return checking("check", [n for n in env.CHECKS if n in names or "all" in names])


@contextmanager
def checking(function: str, names: Sequence[str]) -> Iterator[None]:
    """Enable checks inside the block; `function` is named in the error while a step is recorded."""
    dispatch.require_execution(
        function, "results are checked while the step is only being recorded", fix="check the call of the captured step"
    )
    with scoped(), observing(*map(_observer, names)):
        yield


@contextmanager
def observing(*observers: Observer) -> Iterator[None]:
    """Enable observers in all threads inside the block."""
    settings.observers = (*settings.observers, *observers)
    try:
        yield
    finally:
        remaining = list(settings.observers)
        for observer in observers:
            if observer in remaining:
                remaining.remove(observer)
        settings.observers = tuple(remaining)


def _observer(name: str) -> Observer:
    if name == "bounds":
        return BOUNDS
    kinds: dict[str, Callable[[], Observer]] = {
        "nan": FiniteCheck,
        "reference": ReferenceCheck,
        "gradients": GradientCheck,
    }
    return kinds[name]()


def start() -> None:
    """Enable the checks of POLYHAL_CHECK and POLYHAL_WATCHDOG for the whole process."""
    observers = [_observer(name) for name in env.checks()]
    if env.watchdog():
        observers.append(started(env.watchdog()))
    if observers:
        settings.observers = (*settings.observers, *observers)
        dispatch.set_default_executor(ScopedExecutor(dispatch.EAGER))
