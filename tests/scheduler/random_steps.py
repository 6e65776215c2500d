"""Random steps on several devices: a captured step is compared with its eager run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.device import Device
from polyhal.parallel import Group

from .worker_devices import executable_of

_LENGTH = 5
Instruction = tuple[int, int, int, int]
programs = st.lists(st.tuples(*[st.integers(0, 99)] * 4), min_size=1, max_size=14)


def _run(program: Sequence[Instruction], inputs: Sequence[Any], states: Sequence[Any], group: Group) -> list[Any]:
    """Run a program that computes on all devices, transfers values, and updates a state on each device.

    Numbers have few bits, so that sums are exact in any order.
    """
    values, devices = list(inputs), group.devices
    for kind, first, second, where in program:
        x, y = values[first % len(values)], values[second % len(values)]
        target = where % len(devices)
        if kind % 11 == 0:
            values.append(x.to(devices[target]))
        elif kind % 11 == 1:
            values.append((x + y.to(x.device)).clip(-99, 99))
        elif kind % 11 == 2:
            values.append((x * 0.5).to(devices[target]).T)
        elif kind % 11 == 3:
            values.append(x.T.to(devices[target]))
        elif kind % 11 == 4:
            values.append((x[1:].sum(axis=0).to(devices[target]) - y.to(devices[target])).clip(-99, 99))
        elif kind % 11 == 5:
            states[target].add_(x.to(devices[target])).clip_(-99, 99)
            values.append(states[target] * 2)
        elif kind % 11 == 6:
            states[target][1:] = y.to(devices[target])[1:]
        else:
            values += _combined(kind % 11 - 7, x, values[first:] + values, target, group)
    return values


def _combined(kind: int, x: Any, values: list[Any], root: int, group: Group) -> list[Any]:
    """Return the results of a collective. Each participant sends one of its own values, or a copy of `x` if it has none."""
    if kind == 0:
        return group.broadcast(x.to(group.devices[root]), root)
    sent = [next((v for v in values if v.device is d), x.to(d)) for d in group.devices]
    if kind == 1:
        return [v.clip(-99, 99) for v in group.all_reduce([v * 0.5 for v in sent])]
    if kind == 2:
        whole = group.gather([v.T for v in sent], root)
        return [] if whole is None else [whole[root : root + _LENGTH]]
    return [v.T for v in group.all_gather([v[:root] for v in sent])[:1] if v.shape == (_LENGTH, _LENGTH)] + sent[:1]


def _tensors(rng: np.random.Generator, devices: Sequence[Device]) -> list[ph.Tensor]:
    arrays = [rng.integers(-8, 8, (_LENGTH, _LENGTH)).astype(np.float32) for _ in devices]
    return [ph.Tensor(a, device=d) for a, d in zip(arrays, devices, strict=True)]


def check(program: Sequence[Instruction], devices: Sequence[Device], calls: int = 3) -> Executable | None:
    """Compare a captured program bitwise with its eager run: it adds and halves small integers, so results are exact."""
    eager, captured = (_tensors(np.random.default_rng(0), devices) for _ in range(2))
    group = Group(devices)
    step = ph.jit(lambda *xs: _run(program, xs, captured, group), warm_up=False)
    for call in range(calls):
        rng, again = (np.random.default_rng(1 + call) for _ in range(2))
        expected = _run(program, _tensors(rng, devices), eager, group)
        found = step(*_tensors(again, devices))
        for got, wanted in zip([*found, *captured], [*expected, *eager], strict=True):
            assert got.device is wanted.device
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    return executable_of(step) if step.steps else None


LONG: list[Instruction] = [
    (kind, first, second, where)
    for kind, first, second, where in np.random.default_rng(5).integers(0, 99, (60, 4)).tolist()
]
