"""Cases: programs of libraries, that run on the CPU and on the device, in each mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

import polyhal.torch

MODES = ("eager", "recorded", "compiled")
"""Op by op; the whole step by `polyhal.torch.jit`; the forward pass by `torch.compile` without a backend."""


@dataclass
class Program:
    """A program on one device. Tensors that it does not return, it changes in `model`."""

    step: Callable[[], list[torch.Tensor]]
    """Runs once and returns outputs."""
    model: torch.nn.Module | None = None
    recording: Any = None
    """The function that `polyhal.torch.jit` returned, in the mode "recorded"."""

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients of the parameters, on the CPU."""
        named = self.model.named_parameters() if self.model else ()
        return {n: p.grad.detach().cpu().clone() for n, p in named if p.grad is not None}

    def state(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers of floating-point numbers, on the CPU."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()] if self.model else []
        return {n: x.detach().cpu().clone() for n, x in named if x.is_floating_point()}


@dataclass(frozen=True)
class Case:
    """A program of a library. `build` takes device, dtype and mode; its random numbers must not depend on them."""

    library: str
    name: str
    build: Callable[[str, torch.dtype, str], Program]
    steps: int = 4
    """How often it runs before results are compared: the fourth call of a recorded step only replays."""
    modes: tuple[str, ...] = MODES
    is_exact_in_float64: bool = True
    """True if the program also runs in float64."""


CASES: list[Case] = []
Made = tuple[Any, dict[str, Any]]
"""A model and its arguments, on the CPU."""
Optimizer = Callable[[Any], torch.optim.Optimizer]


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """Return AdamW that moves parameters with gradients of pure rounding, as of key biases, only little."""
    return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """Return SGD with momentum, for gradients that are less exact."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def trained_case(
    library: str,
    name: str,
    make: Callable[[], Made],
    call: Callable[..., Any] | None = None,
    *,
    optimizer: Optimizer = adamw,
    **options: Any,
) -> None:
    """Declare training steps of a model: `make` returns it, on the CPU, with its arguments, a dictionary.

    `call(model, arguments)` replaces `model(**arguments)`. The loss is `outputs.loss`, if there is one; else it weighs all
    outputs by fixed random numbers. `options` are fields of the case.
    """

    def build(device: str, dtype: torch.dtype, mode: str) -> Program:
        model, inputs = _made(make, device, dtype)
        forward, loss_of, update = _forward(mode, model, call), Loss(), optimizer(model.parameters())

        def step(inputs: dict[str, Any]) -> list[torch.Tensor]:
            outputs = forward(inputs)
            values = list(floats(outputs))
            update.zero_grad()
            loss_of(outputs, values).backward()
            update.step()
            return [x.detach() for x in values]

        return _program(mode, step, model, inputs)

    CASES.append(Case(library, name, build, **options))


def computed_case(
    library: str, name: str, make: Callable[[], Made], call: Callable[..., Any] | None = None, **options: Any
) -> None:
    """Declare a program without gradients: arguments are those of `trained_case`. Integer results have to be equal."""

    def build(device: str, dtype: torch.dtype, mode: str) -> Program:
        model, inputs = _made(make, device, dtype)
        forward = _forward(mode, model, call)

        def step(inputs: dict[str, Any]) -> list[torch.Tensor]:
            with torch.no_grad():
                return [x.detach() for x in tensors(forward(inputs))]

        return _program(mode, step, model if isinstance(model, torch.nn.Module) else None, inputs)

    CASES.append(Case(library, name, build, **options))


def whole_case(library: str, name: str, run: Callable[[str, str], Any], modes: tuple[str, ...] = ("eager",)) -> None:
    """Declare a program that has a loop of its own: `run(device, mode)` returns a tree of its tensors."""

    def build(device: str, dtype: torch.dtype, mode: str) -> Program:
        return Program(lambda: list(tensors(run(device, mode))))

    CASES.append(Case(library, name, build, steps=1, modes=modes, is_exact_in_float64=False))


def _made(make: Callable[[], Made], device: str, dtype: torch.dtype) -> Made:
    torch.manual_seed(0)
    model, inputs = make()
    if isinstance(model, torch.nn.Module):
        for parameter in model.parameters():
            if parameter.ndim > 1 and not parameter.any():  # zero-initialized heads would hide all other layers
                torch.nn.init.normal_(parameter, std=0.02)
        model = model.to(device)
        model = model if dtype is torch.float32 else model.to(dtype)  # complex numbers stay complex
    return model, moved_to(inputs, device, dtype)


def _forward(mode: str, model: Any, call: Callable[..., Any] | None) -> Callable[[dict[str, Any]], Any]:
    if call is None:
        module = torch.compile(model) if mode == "compiled" else model
        return lambda inputs: module(**inputs)
    function = torch.compile(call) if mode == "compiled" else call
    return lambda inputs: function(model, inputs)


def _program(mode: str, step: Callable[[Any], Any], model: torch.nn.Module | None, inputs: dict[str, Any]) -> Program:
    recording = polyhal.torch.jit(step) if mode == "recorded" else None
    return Program(lambda: (recording or step)(inputs), model, recording)


@dataclass
class Loss:
    """A number that depends on all elements of outputs, with weights that are equal on every device."""

    weights: dict[tuple[Any, ...], torch.Tensor] = field(default_factory=dict)
    """Weights by position and shape, made at their first use."""

    def __call__(self, outputs: Any, values: list[torch.Tensor]) -> torch.Tensor:
        """Return the loss of a model's outputs, with their tensors of floating-point numbers."""
        loss = getattr(outputs, "loss", None)
        if isinstance(loss, torch.Tensor):
            return loss
        terms = [(x * self._weights(i, x)).mean() for i, x in enumerate(values) if x.requires_grad]
        return torch.stack(terms).sum()

    def _weights(self, position: int, x: torch.Tensor) -> torch.Tensor:
        key = position, tuple(x.shape)
        if key not in self.weights:
            generator = torch.Generator().manual_seed(1 + position)
            self.weights[key] = torch.randn(x.shape, generator=generator).to(x.device, x.dtype)
        return self.weights[key]


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Return the tensors in the outputs of a model."""
    tree = dict(tree) if hasattr(tree, "keys") else tree
    for x in pytree.tree_leaves(tree):
        if isinstance(x, torch.Tensor):
            yield x


def floats(tree: Any) -> Iterator[torch.Tensor]:
    """Return the tensors of floating-point numbers in the outputs of a model."""
    return (x for x in tensors(tree) if x.is_floating_point())


def moved_to(tree: Any, device: str, dtype: torch.dtype) -> Any:
    """Move all tensors of a tree to a device, and cast floating-point ones."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.to(device, dtype if x.is_floating_point() else None)

    return pytree.tree_map(move, tree)
