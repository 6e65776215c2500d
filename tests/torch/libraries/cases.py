"""Cases: programs that run on the CPU and on the device, and their results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass
class Given:
    """Results of a program on one device, copied to the CPU and compared by tensor."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A program of a library. `run` takes the name of a device; its random numbers must not depend on the device."""

    library: str
    name: str
    run: Callable[[str], Given]
    exact: Callable[[], Given] | None = None
    """The program on the CPU in float64, if it supports that."""


CASES: list[Case] = []


def case(library: str, name: str) -> Callable[[Callable[[str], Given]], Callable[[str], Given]]:
    """Declare a program."""

    def declare(run: Callable[[str], Given]) -> Callable[[str], Given]:
        CASES.append(Case(library, name, run))
        return run

    return declare


Made = tuple[torch.nn.Module, Any]


def trained_case(library: str, name: str, make: Callable[[], Made], call: Callable[..., Any] | None = None) -> None:
    """Declare a forward and a backward pass of a model: `make` returns it, on the CPU, with its arguments, a dictionary.

    `call(model, arguments)` replaces `model(**arguments)`. The loss weighs all outputs by fixed random numbers.
    """

    def run(device: str, dtype: torch.dtype = torch.float32) -> Given:
        torch.manual_seed(0)
        model, inputs = make()
        for parameter in model.parameters():
            if parameter.ndim > 1 and not parameter.any():  # zero-initialized heads would hide all other layers
                torch.nn.init.normal_(parameter, std=0.02)
        model = copy.deepcopy(model).to(device, dtype)
        moved = moved_to(inputs, device, dtype)
        outputs = list(floats(call(model, moved) if call else model(**moved)))
        loss_of(outputs).backward()
        return Given(on_cpu(outputs), gradients_of(model))

    CASES.append(Case(library, name, run, lambda: run("cpu", torch.float64)))


def floats(tree: Any) -> Iterator[torch.Tensor]:
    """Return the floating-point tensors in the outputs of a model."""
    tree = dict(tree) if hasattr(tree, "keys") else tree
    for x in pytree.tree_leaves(tree):
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            yield x


def moved_to(tree: Any, device: str, dtype: torch.dtype) -> Any:
    """Move all tensors of a tree to a device, and cast floating-point ones."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.to(device, dtype if x.is_floating_point() else None)

    return pytree.tree_map(move, tree)


def loss_of(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Return a number that depends on all elements, with weights that are equal on every device."""
    generator = torch.Generator().manual_seed(1)
    terms = []
    for x in outputs:
        if x.requires_grad:
            weights = torch.randn(x.shape, generator=generator).to(x)
            terms.append((x * weights).mean())
    return torch.stack(terms).sum()


def on_cpu(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors to the CPU, detached."""
    return [x.detach().cpu() for x in values]


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients of a model's parameters, on the CPU."""
    return {n: p.grad.detach().cpu() for n, p in model.named_parameters() if p.grad is not None}
