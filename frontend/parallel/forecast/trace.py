"""A captured training step on a predicting device, taken apart: input side, layers, output side, forward and backward.

Layers are equal, so a step is captured with three of them: the second stands for all between the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from polyhal.amp.autocast import autocast
from polyhal.autograd.checkpoint import checkpoint
from polyhal.creation import zeros
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.nn.module import Module
from polyhal.parallel.forecast.recipes import ModelRecipe
from polyhal.parallel.forecast.run_times import time_runs
from polyhal.parallel.forecast.sections import SectionFinder
from polyhal.steps.jit import Jitted, jit
from polyhal.tensor import Tensor

_CAPTURED_LAYERS = 3


class TraceKey(NamedTuple):
    """What a captured step depends on."""

    samples: int
    """The batch of one pass."""
    split: int = 1
    """Devices among which layers are split."""
    recompute: bool = False
    """Whether layers keep their inputs only, and are computed again in the backward pass."""
    accumulate: bool = False
    """Whether gradients are added to those of passes before."""


class GradientEvent(NamedTuple):
    """A gradient that is complete some seconds after the start of its section."""

    seconds: float
    nbytes: int


@dataclass(slots=True)
class Section:
    """A part of a step."""

    seconds: float = 0.0
    """The device's time."""
    host_seconds: float = 0.0
    """The host's time to submit its kernels."""
    gradients: list[GradientEvent] = field(default_factory=list)
    own: int = 0
    """The most bytes that are live in it, without parameters, gradients and what layers before keep."""
    own_with_gradients: int = 0
    """The same with its own gradients, each from the moment when it is complete."""


@dataclass(frozen=True, slots=True)
class PassTrace:
    """One pass through a model and back, by sections."""

    before: Section
    """The input side: all of a model without layers."""
    forward: list[Section]
    """The captured layers."""
    after: Section
    """The output side and the loss."""
    after_backward: Section
    backward: list[Section]
    """The captured layers, the first one first."""
    before_backward: Section
    kept: int
    """Bytes that a layer keeps from its forward pass to its backward pass."""
    parameters: ParameterBytes
    fixed: int
    """Bytes of arguments, results, constants and state apart from the optimizer's."""
    overhead: float
    """By how much the memory of temporaries is larger than the most bytes that are live in it."""
    boundary: int
    """Bytes that a layer passes to the next."""
    sums: tuple[int, ...]
    """Bytes of each result of a layer that is summed over the devices that share the layer."""
    embedded: int
    """Bytes of the input side's result, which is such a sum, too; 0 if the input side is whole on each device."""
    logits_norm: int
    """Bytes per pass for maxima and sums of logits that are split among devices; 0 if they are not."""

    def layer(self, number: int, count: int) -> int:
        """The captured layer that stands for layer `number` of `count`."""
        captured = len(self.forward)
        if number == 0 or captured == 1:
            return 0
        return captured - 1 if number == count - 1 else min(1, captured - 1)


class ParameterBytes(NamedTuple):
    """Bytes of parameters, tensor by tensor, by where they are used."""

    before: list[int]
    layer: list[int]
    after: list[int]
    tied: int
    """Bytes of the input side's parameter that the output side uses as well; 0 for none."""


def trace_pass(recipe: ModelRecipe, device: Device, key: TraceKey, dtype: Any) -> PassTrace:
    """Capture a pass through the model on a device that predicts times, and take it apart.

    `dtype` is float32, or a half dtype for automatic mixed precision. Raises OutOfMemoryError and ValueError.
    """
    model = recipe.build(min(recipe.layers, _CAPTURED_LAYERS), device)
    if key.split > 1:
        if recipe.split is None:
            raise ValueError(f"{recipe.name} has no layers that can be split among devices")
        recipe.split.apply(model, key.split)
    observed = _Observer(recipe, model, key)
    x, y = recipe.batch(key.samples, device)
    step = _captured(recipe, model, key, dtype)
    times = time_runs(device, lambda: step(x, y))
    executable = step.steps[0].executable
    memory = executable.memory_report().devices[0]
    found = SectionFinder(recipe, model, executable, times, device)
    fixed = sum(kind.nbytes for kind in (memory.state, memory.constants, memory.arguments, memory.results))
    if key.accumulate:  # the gradients are among the arguments
        fixed -= sum(p.grad.buffer.nbytes for p in model.parameters() if p.grad is not None)
    split_table = key.split > 1 and recipe.split is not None
    return PassTrace(
        *found.sections,
        kept=found.kept,
        parameters=_parameter_bytes(recipe, model),
        fixed=max(fixed, 0),
        overhead=found.overhead,
        boundary=observed.boundary,
        sums=tuple(observed.sums),
        embedded=observed.boundary if split_table else 0,
        logits_norm=2 * y.size * float32.itemsize if split_table and recipe.split and recipe.split.head else 0,
    )


def _captured(recipe: ModelRecipe, model: Module, key: TraceKey, dtype: Any) -> Jitted[[Tensor, Tensor], Tensor]:
    """The pass as a captured step."""
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = zeros(p.shape, p.dtype, p.device) if key.accumulate else None

    def step(x: Tensor, y: Tensor) -> Tensor:
        if not key.accumulate:
            for p in parameters:
                p.grad = None
        with nullcontext() if dtype is float32 else autocast(dtype):
            loss = recipe.loss(model, x, y)
        loss.backward()
        return loss

    return jit(step, warm_up=False)


class _Observer:
    """Notes the results of layers and of the modules whose results are summed, and makes layers compute again."""

    def __init__(self, recipe: ModelRecipe, model: Module, key: TraceKey) -> None:
        self.boundary = 0
        self.sums: list[int] = []
        modules = dict(model.named_modules())
        first = f"{recipe.layer_prefix}0"
        for path, module in modules.items():
            if path == first:
                module.register_forward_hook(self._pass_on)
            elif path.startswith(f"{first}.") and recipe.split is not None and recipe.split.is_row(path):
                module.register_forward_hook(self._sum)
        if key.recompute:
            for number in range(recipe.layers and min(recipe.layers, _CAPTURED_LAYERS)):
                layer: Any = modules[f"{recipe.layer_prefix}{number}"]
                layer.forward = partial(checkpoint, layer.forward)

    def _pass_on(self, module: Module, args: Any, result: Tensor) -> None:
        self.boundary = result.nbytes

    def _sum(self, module: Module, args: Any, result: Tensor) -> None:
        if not self.boundary:  # else it is computed again
            self.sums.append(result.nbytes)


def _parameter_bytes(recipe: ModelRecipe, model: Module) -> ParameterBytes:
    before: list[int] = []
    after: list[int] = []
    layer: list[int] = []
    tied = 0
    for name, p in model.named_parameters():
        if recipe.layer_prefix and name.startswith(recipe.layer_prefix):
            if name.startswith(f"{recipe.layer_prefix}0."):
                layer.append(p.nbytes)
        elif not recipe.layer_prefix or _is_under(name, recipe.input_prefixes):
            before.append(p.nbytes)
        else:
            after.append(p.nbytes)
        if recipe.tied and name in recipe.tied:
            tied = p.nbytes
    return ParameterBytes(before, layer, after, tied)


def _is_under(name: str, prefixes: Iterable[str]) -> bool:
    return any(name == p or name.startswith(f"{p}.") for p in prefixes)
