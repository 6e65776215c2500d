"""A stage of a pipeline, or the whole model: the layers of one device, as spans of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from polyhal.forecast.trace import GradientEvent, PassTrace, Section


class Part(Enum):
    """Part of a model that a span covers."""

    INPUT = auto()
    LAYER = auto()
    OUTPUT = auto()


class PassSpan(NamedTuple):
    """A part of a pass on one device."""

    part: Part
    seconds: float
    gradients: tuple[GradientEvent, ...]
    parameters: int
    """Bytes of the parameters that the span reads."""
    own: int
    """Bytes of temporaries, without activations that the stage's earlier layers keep."""
    own_with_gradients: int
    """Bytes of temporaries and of the span's gradients, each from its completion."""
    below: int
    """Number of the stage's layers that keep activations meanwhile."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive layers, with the input side in the first stage and the output side in the last."""

    forward: tuple[PassSpan, ...]
    backward: tuple[PassSpan, ...]
    sizes: tuple[int, ...]
    """Bytes of each parameter, in the order of the model."""
    layers: int
    first: bool
    last: bool

    @property
    def parameters(self) -> int:
        """Bytes of all parameters."""
        return sum(self.sizes)

    @property
    def seconds(self) -> float:
        """Time of a forward and a backward pass."""
        return sum(s.seconds for s in self.forward) + sum(s.seconds for s in self.backward)

    @property
    def gradients(self) -> int:
        """Bytes of all gradients."""
        return sum(e.nbytes for s in self.backward for e in s.gradients)


def make_stage(trace: PassTrace, total: int, start: int, stop: int) -> Stage:
    """Build the stage of layers `start` to `stop - 1` of `total`."""
    first, last = start == 0, stop == total
    sizes = trace.parameters
    layer_bytes, count = sum(sizes.layer), stop - start
    before, after = sum(sizes.before), sum(sizes.after)
    alone = first and last
    after += 0 if alone else sizes.tied  # the last stage has a copy of its own
    forward: list[tuple[Part, Section, int, int]] = []
    backward: list[tuple[Part, Section, int, int]] = []
    if first:
        forward.append((Part.INPUT, trace.before, before, 0))
    for i, number in enumerate(range(start, stop)):
        forward.append((Part.LAYER, trace.forward[trace.layer(number, total)], layer_bytes, i))
    if last:
        read = after + (sizes.tied if alone else 0)
        forward.append((Part.OUTPUT, trace.after, read, count))
        backward.append((Part.OUTPUT, trace.after_backward, read, count))
    for i, number in reversed(list(enumerate(range(start, stop)))):
        backward.append((Part.LAYER, trace.backward[trace.layer(number, total)], layer_bytes, i))
    if first:
        backward.append((Part.INPUT, trace.before_backward, before, 0))
    seconds = _effective([section for _, section, _, _ in (*forward, *backward)])
    spans = [
        PassSpan(part, time, tuple(_stretched(section, time)), read, section.own, section.own_with_gradients, below)
        for time, (part, section, read, below) in zip(seconds, (*forward, *backward), strict=True)
    ]
    copied = [sizes.tied] if last and not alone and sizes.tied else []
    owned = [*(sizes.before if first else ()), *(sizes.layer * count), *(sizes.after if last else ()), *copied]
    return Stage(tuple(spans[: len(forward)]), tuple(spans[len(forward) :]), tuple(owned), count, first, last)


def _effective(sections: Sequence[Section]) -> list[float]:
    """Return the time of each section, which ends no earlier than the host has enqueued its kernels."""
    end = host = 0.0
    times: list[float] = []
    for section in sections:
        host += section.host_seconds
        now = max(end + section.seconds, host)
        times.append(now - end)
        end = now
    return times


def _stretched(section: Section, seconds: float) -> list[GradientEvent]:
    factor = seconds / section.seconds if section.seconds else 1.0
    return [GradientEvent(e.seconds * factor, e.nbytes) for e in section.gradients]


def split_layers(trace: PassTrace, layers: int, stages: int) -> list[tuple[int, int]]:
    """Return the range of layers of each stage that minimizes the time of the slowest stage.

    The input side counts for the first stage, the output side for the last.
    """
    costs = []
    for number in range(layers):
        captured = trace.layer(number, layers)
        cost = trace.forward[captured].seconds + trace.backward[captured].seconds
        cost += (trace.before.seconds + trace.before_backward.seconds) * (number == 0)
        cost += (trace.after.seconds + trace.after_backward.seconds) * (number == layers - 1)
        costs.append(cost)
    return _balanced(costs, stages)


def _balanced(costs: Sequence[float], parts: int) -> list[tuple[int, int]]:
    """Divide costs into non-empty consecutive ranges; bisection minimizes the largest sum."""
    low, high = max(costs), sum(costs)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_filled(costs, middle, parts)) <= parts else (middle, high)
    ends = _filled(costs, high, parts)
    starts = [0, *ends[:-1]]
    return list(zip(starts, ends, strict=True))


def _filled(costs: Sequence[float], limit: float, parts: int) -> list[int]:
    """Return the ends of ranges that are filled up to a limit, but leave a layer for each later range."""
    ends: list[int] = []
    total = 0.0
    for number, cost in enumerate(costs):
        must_end = len(ends) < parts - 1 and len(costs) - number <= parts - 1 - len(ends)
        if number and (total + cost > limit or must_end):
            ends.append(number)
            total = 0.0
        total += cost
    return [*ends, len(costs)]


Seconds = Callable[[float], float]
"""Function from a number of bytes to the time of a collective."""
