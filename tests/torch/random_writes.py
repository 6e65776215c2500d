"""Random PyTorch programs of in-place writes and copies among a few tensors and their views, for comparisons."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from compiled import cubed

SHAPE = (3, 4)
Instruction = tuple[int, int, int, int]
"""A kind, two tensors made so far, and a choice; each is taken modulo the number of possibilities."""
Values = list[Any]

_VIEWS: Sequence[Callable[[torch.Tensor, int], torch.Tensor]] = (
    lambda x, _: x[0:],
    lambda x, _: x[..., 0:],
    lambda x, _: x.t() if x.ndim == 2 else x[1:],
    lambda x, c: x[c % len(x)],
    lambda x, _: x[::2],
    lambda x, _: x[..., 1:3],
    lambda x, _: x.unsqueeze(0) if x.ndim < 3 else x[0],
    lambda x, _: x.diagonal() if x.ndim == 2 else x[:2],
    lambda x, _: x.detach(),
)
_COPIES: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    lambda x: x * 1,
    lambda x: x.clone(),
    lambda x: x.roll(0, 0),
    lambda x: x.repeat(*[1] * x.ndim),
    lambda x: torch.nn.functional.pad(x, (0, 0)),
    lambda x: x.flip(0),
    lambda x: x.double().float(),
    lambda x: x.sum(0),
    lambda x: x.neg().abs(),
    lambda x: torch.where(x > 1, x, x + 1),
)
_CHANGES: Sequence[Callable[[torch.Tensor, int], Any]] = (
    lambda x, _: x.add_(1),
    lambda x, _: x.mul_(2),
    lambda x, _: x.zero_(),
    lambda x, c: x.fill_(c % 5),
    lambda x, _: x.clamp_(max=3),
)


def program(seed: int, length: int) -> list[Instruction]:
    """Return random instructions."""
    source = random.Random(seed)
    return [(source.randrange(10), *(source.randrange(1000) for _ in range(3))) for _ in range(length)]  # type: ignore[misc]


def function_of(instructions: Sequence[Instruction], splits: bool = False) -> Callable[..., Values]:
    """Return the program as a function of three tensors. With `splits`, some of its ops run outside of the device."""

    def function(*arguments: torch.Tensor) -> Values:
        values = list(arguments)
        memory = list(range(len(values)))
        """A number for the memory of each value."""
        for kind, first, second, choice in instructions:
            i, j = first % len(values), second % len(values)
            made = _step(kind, values[i], values[j], memory[i] == memory[j], choice, splits)
            if made is not None:
                values.append(made)
                memory.append(memory[i] if kind < 3 else len(memory))
        return [x for n, x in enumerate(values) if n >= len(values) - 2 or n % 3 == 0]

    return function


def _step(kind: int, x: torch.Tensor, y: torch.Tensor, share: bool, choice: int, splits: bool) -> torch.Tensor | None:
    """Execute an instruction. Returns a new value, or None for a write."""
    if kind < 3:
        return _VIEWS[choice % len(_VIEWS)](x, choice) if x.ndim and len(x) else x[None]
    if kind == 3:
        if splits and choice % 2:
            return cubed(x)
        return _COPIES[choice % len(_COPIES)](x) if x.ndim else x * 2
    if kind == 6:
        _CHANGES[choice % len(_CHANGES)](x, choice)
    elif _fits(x, y):
        if kind == 9:
            return x + y
        source = y.clone() if share else y  # PyTorch leaves writes that overlap their source undefined
        if kind == 8 and _fits(y, x):
            before = x.clone()
            x.copy_(source)
            y.copy_(before)
        elif kind == 7:
            x.add_(source)
        elif choice % 3 and x.ndim:
            x[0:] = source[0:] if source.ndim == x.ndim else source
        else:
            x.copy_(source)
    return None


def _fits(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return True if `y` is broadcast to the shape of `x`."""
    return y.ndim <= x.ndim and all(m in (1, n) for n, m in zip(reversed(x.shape), reversed(y.shape), strict=False))


def arguments(call: int, place: str) -> list[torch.Tensor]:
    """Return small integers in three layouts; the last one is a slice of a larger tensor."""
    first = (torch.arange(12.0) % 5 + call).reshape(SHAPE)
    second = (torch.arange(12.0) % 3 + 10).reshape(4, 3)
    third = torch.arange(30.0).reshape(5, 6) % 4 + call
    return [first.to(place), second.to(place).t(), third.to(place)[1:4, 1:5]]


def outcome(function: Callable[..., Values], place: str, calls: int = 3) -> list[Any]:
    """Return arguments and results, before and after writes to each result, which reveal shared memory."""
    found: list[Any] = []
    for call in range(calls):
        given = arguments(call, place)
        results = function(*given)
        found.append([x.tolist() for x in (*given, *results)])
        for number, x in enumerate(results):
            x.add_(100.0 * (number + 1))
        found.append([x.tolist() for x in (*given, *results)])
    return found
