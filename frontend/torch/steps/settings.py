"""Replace optimizer settings by live numbers while a step is recorded, and advance schedulers in each run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from polyhal.hal.compile.capture.replay_cache import NotReplayableError
from polyhal.torch.steps import active
from polyhal.torch.steps.numbers import LiveNumber, true_value
from polyhal.torch.steps.tree import TREE
from polyhal.torch.steps.watch import StepWatch

if TYPE_CHECKING:
    from polyhal.torch.call_types import Function


class LiveSettings:
    """Settings that a recording replaces by live numbers, with their former values."""

    def __init__(self, watch: StepWatch, names: frozenset[str]) -> None:
        self._watch = watch
        self._names = names
        self._saved: list[tuple[dict[str, Any], str, Any]] = []
        self._placed: list[Any] = []
        self._entered: dict[int, Optimizer] = {}

    def enter(self, optimizer: Optimizer) -> None:
        """Replace the settings of an optimizer."""
        if id(optimizer) in self._entered or self._watch.is_left:
            return
        self._entered[id(optimizer)] = optimizer
        for i, group in enumerate(optimizer.param_groups):
            for key in self._names & group.keys():
                value = group[key]
                if type(value) is float or (type(value) is tuple and all(type(x) is float for x in value)):
                    self._saved.append((group, key, value))
                    self._placed.append(None)
                    self._place(len(self._saved) - 1, f"{key}" if len(optimizer.param_groups) == 1 else f"{key} {i}")

    def renew(self) -> None:
        """Make new live numbers for all settings, which a scheduler may have changed at this point."""
        for i, (_, key, _) in enumerate(self._saved):
            self._place(i, key)

    def leave(self) -> None:
        """Restore the settings. Raises NotReplayableError if the step itself set one."""
        set_inside = [
            key for (group, key, _), own in zip(self._saved, self._placed, strict=True) if group[key] is not own
        ]
        if set_inside:
            fix = "set it outside, or with a scheduler of torch.optim.lr_scheduler"
            raise NotReplayableError(f"it sets {set_inside[0]!r} of an optimizer", fix, is_certain=True)
        self.abandon()

    def release(self) -> None:
        """Restore the settings that the step has not set, in the middle of a call that goes on eagerly."""
        for (group, key, value), own in zip(self._saved, self._placed, strict=True):
            if group.get(key) is own:
                group[key] = value

    def settle(self) -> None:
        """Replace the live numbers that the step has computed and stored in settings by plain ones."""
        for optimizer in self._entered.values():
            for group in optimizer.param_groups:
                for key, value in group.items():
                    if isinstance(value, (LiveNumber, tuple)):
                        group[key] = TREE.replaced(value, true_value)

    def abandon(self) -> None:
        """Restore the settings after an error."""
        for group, key, value in self._saved:
            group[key] = value

    def _place(self, index: int, name: str) -> None:
        group, key, value = self._saved[index]
        if type(value) is tuple:
            parts = range(len(value))
            live: Any = tuple(self._number(group, lambda g, i=i: g[key][i], f"{name}[{i}]") for i in parts)  # type: ignore[misc]
        else:
            live = self._number(group, lambda g: g[key], name)
        self._placed[index] = group[key] = live

    def _number(self, group: dict[str, Any], read: Callable[[dict[str, Any]], Any], name: str) -> LiveNumber:
        def compute(values: list[Any]) -> Any:
            x = read(group)
            return x.scalar.value if type(x) is LiveNumber else x

        return self._watch.number(compute, name, name)


@contextmanager
def noticing_optimizers(notice: Callable[[Optimizer], object]) -> Iterator[None]:
    """Call `notice` with each optimizer whose `step` this thread calls in the block, before the call."""
    owner = threading.get_ident()

    def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if threading.get_ident() == owner:
            notice(optimizer)

    handle = register_optimizer_step_pre_hook(before_step)
    try:
        yield
    finally:
        handle.remove()


def put_off_schedulers() -> None:
    """Let the calls of `scheduler.step()` in threads that record act in each run instead."""
    for kind in _kinds(LRScheduler):
        active.replace(kind, "step", _at_runs)
        active.replace(kind, "get_last_lr", _read_at_runs)


def _at_runs(original: Function) -> Function:
    @functools.wraps(original)
    def step(scheduler: LRScheduler, *args: object, **kwargs: object) -> None:
        watch = active.recorded()
        if watch is None:
            original(scheduler, *args, **kwargs)
            return
        watch.program.put_off(lambda: original(scheduler, *args, **kwargs), id(scheduler), args, kwargs)
        watch.renew_settings()

    return step


def _read_at_runs(original: Function) -> Function:
    @functools.wraps(original)
    def get_last_lr(scheduler: LRScheduler) -> Any:
        rates, watch = original(scheduler), active.recorded()
        if watch is None:
            return rates
        return [
            watch.number(lambda values, i=i: original(scheduler)[i], "lr", "last rate", id(scheduler))  # type: ignore[misc]
            for i in range(len(rates))
        ]

    return get_last_lr


def _kinds(kind: type) -> list[type]:
    """Return a class and all its subclasses."""
    derived: list[type] = kind.__subclasses__()
    return [kind, *(k for child in derived for k in _kinds(child))]
