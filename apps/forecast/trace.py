"""A captured training step on a simulated device, divided into input side, layers and output side, forward and backward.

Layers are equal, so three of them are captured: the second represents all layers between the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from polyhal import Device, Tensor, autocast, checkpoint, jit, zeros
from polyhal.forecast.recipes import ModelRecipe
from polyhal.forecast.run_times import time_runs
from polyhal.forecast.sections import SectionFinder
from polyhal.hal.dtypes import float32
from polyhal.nn import Module
from polyhal.profiler import Jitted, outline

_CAPTURED_LAYERS = 3


class TraceKey(NamedTuple):
    """Parameters of a captured step."""

    samples: int
    """Samples in one pass."""
    split: int = 1
    """Devices among which layers are split."""
    recompute: bool = False
    """True if layers keep only their inputs, and are recomputed in the backward pass."""
    accumulate: bool = False
    """True if gradients are accumulated over passes."""


class GradientEvent(NamedTuple):
    """A gradient with the seconds from the start of its section to its completion."""

    seconds: float
    nbytes: int


@dataclass(slots=True)
class Section:
    """Time and memory of a part of a step."""

    seconds: float = 0.0
    """Device time."""
    host_seconds: float = 0.0
    """Host time to enqueue its kernels."""
    gradients: list[GradientEvent] = field(default_factory=list)
    own: int = 0
    """Peak bytes live in the section, without parameters, gradients and activations of earlier layers."""
    own_with_gradients: int = 0
    """Peak bytes including the section's own gradients, each from its completion."""


@dataclass(frozen=True, slots=True)
class PassTrace:
    """One forward and backward pass of a model, by sections."""

    before: Section
    """Input side; the whole model if it has no layers."""
    forward: list[Section]
    """Captured layers."""
    after: Section
    """Output side and loss."""
    after_backward: Section
    backward: list[Section]
    """Captured layers, in the order of the model."""
    before_backward: Section
    kept: int
    """Bytes of activations that a layer keeps from its forward pass to its backward pass."""
    parameters: ParameterBytes
    fixed: int
    """Bytes of arguments, results, constants and state, without the optimizer's."""
    overhead: float
    """Ratio of the memory of temporaries to its peak of live bytes: fragmentation."""
    boundary: int
    """Bytes of the activations between two layers."""
    sums: tuple[int, ...]
    """Bytes of each tensor-parallel sum of a layer."""
    embedded: int
    """Bytes of the input side's result, which is also summed over devices; 0 if each device has the whole input side."""
    logits_norm: int
    """Bytes per pass of maxima and sums of split logits; 0 if logits are not split."""

    def layer(self, number: int, count: int) -> int:
        """Return the index of the captured layer that represents layer `number` of `count`."""
        captured = len(self.forward)
        if number == 0 or captured == 1:
            return 0
        return captured - 1 if number == count - 1 else min(1, captured - 1)


class ParameterBytes(NamedTuple):
    """Bytes of each parameter, by section."""

    before: list[int]
    layer: list[int]
    after: list[int]
    tied: int
    """Bytes of the input side's parameter that the output side also uses; 0 without tied weights."""


def trace_pass(recipe: ModelRecipe, device: Device, key: TraceKey, dtype: Any) -> PassTrace:
    """Capture a pass of the model on a device that predicts times, and divide it into sections.

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
    memory = step.steps[0].memory_report().devices[0]
    passed = outline(step, device)
    found = SectionFinder(recipe, model, passed, times)
    fixed = sum(kind.nbytes for kind in (memory.state, memory.constants, memory.arguments, memory.results))
    if key.accumulate:  # the memory report counts accumulated gradients as arguments
        fixed -= sum(p.grad.buffer.nbytes for p in model.parameters() if p.grad is not None)
    split_table = key.split > 1 and recipe.split is not None
    return PassTrace(
        *found.sections,
        kept=found.kept,
        parameters=_parameter_bytes(recipe, model),
        fixed=max(fixed, 0),
        overhead=passed.fragmentation,
        boundary=observed.boundary,
        sums=tuple(observed.sums),
        embedded=observed.boundary if split_table else 0,
        logits_norm=2 * y.size * float32.itemsize if split_table and recipe.split and recipe.split.head else 0,
    )


def _captured(recipe: ModelRecipe, model: Module, key: TraceKey, dtype: Any) -> Jitted[[Tensor, Tensor], Tensor]:
    """Return the pass as a captured step."""
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
    """Records the sizes of layers' results and of tensor-parallel sums, and makes layers recompute."""

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
        if not self.boundary:  # later calls are recomputations
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
