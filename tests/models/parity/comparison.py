"""Comparison of outputs and gradients of a model with a PyTorch model of equal weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

import polyhal
from polyhal.nn import Module
from tests.models.parity.branches import recorded, replayed

_ZERO = 1e-9
"""A gradient that is smaller than this, relative to the largest of the model, in float64, is zero but for rounding."""


class Agreement(NamedTuple):
    """The largest relative errors: of the outputs, and of the gradient of any parameter."""

    outputs: float
    gradients: float
    worst: str
    """The parameter whose gradient has the largest error."""


@dataclass(frozen=True)
class Results:
    """Results of one run of a model."""

    outputs: list[np.ndarray]
    gradients: Mapping[str, np.ndarray]
    """By the names of parameters."""
    branches: list[np.ndarray]


def torch_results(
    model: torch.nn.Module,
    inputs: Sequence[np.ndarray],
    dtype: torch.dtype = torch.float64,
    branches: list[np.ndarray] | None = None,
) -> Results:
    """Run a copy of a PyTorch model in a dtype, forward and backward, on branches that another model took if given."""
    model = copy.deepcopy(model).to(dtype)
    tensors = [torch.tensor(x) for x in inputs]
    with recorded(model) as taken, nullcontext() if branches is None else replayed(model, branches):
        out = model(*(x.to(dtype) if x.is_floating_point() else x for x in tensors))
    outputs = out if isinstance(out, tuple) else (out,)
    sum((y * torch.tensor(w, dtype=dtype)).mean() for y, w in zip(outputs, _weights(outputs), strict=True)).backward()
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    return Results([y.detach().numpy() for y in outputs], gradients, taken)


def own_results(model: Module, inputs: Sequence[np.ndarray], device: polyhal.Device) -> Results:
    """Run a model forward and backward, with the same loss as `torch_results`."""
    with recorded(model) as taken:
        out = model(*(polyhal.tensor(x, device=device) for x in inputs))
    outputs = out if isinstance(out, tuple) else (out,)
    weighted = [(y * polyhal.tensor(w, device=device)).mean() for y, w in zip(outputs, _weights(outputs), strict=True)]
    polyhal.stack(weighted).sum().backward()
    gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    return Results([y.numpy() for y in outputs], gradients, taken)


def agreement(actual: Results, expected: Results) -> Agreement:
    """Compare the results of two models. A gradient that is zero but for rounding is compared with the largest one."""
    assert actual.gradients.keys() == expected.gradients.keys()
    sizes = {name: _norm(g) / g.size**0.5 for name, g in expected.gradients.items()}
    largest = max(sizes.values())
    errors = {}
    for name, g in expected.gradients.items():
        scale = sizes[name] if sizes[name] > _ZERO * largest else largest
        errors[name] = _norm(actual.gradients[name] - g) / (scale * g.size**0.5)
    worst = max(errors, key=lambda name: errors[name])
    pairs = zip(actual.outputs, expected.outputs, strict=True)
    return Agreement(max(_norm(a - b) / _norm(b) for a, b in pairs), errors[worst], worst)


def load_weights_of(ours: Module, theirs: torch.nn.Module) -> None:
    """Load PyTorch's weights and buffers, by name, strictly."""
    ours.load_state_dict({key: value.detach().numpy() for key, value in theirs.state_dict().items()})


def compare(ours: Module, theirs: torch.nn.Module, inputs: Sequence[np.ndarray], device: polyhal.Device) -> Agreement:
    """Load the weights of `ours` into `theirs`, and compare its results with PyTorch's in float64."""
    load_weights_of(ours, theirs)
    actual = own_results(ours, inputs, device)
    return agreement(actual, torch_results(theirs, inputs, branches=actual.branches))


def _weights(outputs: Sequence[object]) -> list[np.ndarray]:
    """Return weights of the outputs in the loss, so that all of them count and none by symmetry."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(tuple(y.shape)).astype(np.float32) for y in outputs]  # type: ignore[attr-defined]


def _norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(x, np.float64)))
