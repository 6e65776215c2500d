"""Gradients of the same weighted sum of results, here and in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

import polyhal
from polyhal import Tensor
from tests.pytorch.compare import difference
from tests.pytorch.convert import leaves, to_polyhal


def torch_gradients(results: Any, inputs: Any) -> list[torch.Tensor]:
    """PyTorch's gradients of a weighted sum of all results, one per input that requires one; zeros without a path."""
    wanted = [t for t in leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t for t in leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not outputs:
        return []
    found = torch.autograd.grad(outputs, wanted, _weights(outputs), allow_unused=True, retain_graph=True)
    dense = [g if g is None or g.layout is torch.strided else g.to_dense() for g in found]
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, dense, strict=True)]


def polyhal_gradients(results: Any, inputs: Any, theirs: Any) -> list[Any] | str:
    """Polyhal's gradients of the same sum, or why there are none. `theirs` are PyTorch's results."""
    wanted = [t for t in leaves(inputs) if isinstance(t, Tensor) and t.requires_grad]
    outputs = [t for t in leaves(results) if isinstance(t, Tensor) and t.requires_grad]
    expected = [t for t in leaves(theirs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not expected:
        return []
    if len(outputs) != len(expected):
        return f"{len(outputs)} results carry gradients, expected {len(expected)}"
    weights = [to_polyhal(w, outputs[0].device) for w in _weights(expected)]
    found = polyhal.grad(outputs, wanted, weights, allow_unused=True, retain_graph=True)
    return [polyhal.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


def _weights(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in outputs]


def gradient_difference(ours: Any, theirs: Any, our_inputs: Any, their_inputs: Any) -> str:
    """What differs between gradients of the same weighted sum of all results."""
    got, expected = polyhal_gradients(ours, our_inputs, theirs), torch_gradients(theirs, their_inputs)
    if isinstance(got, str):
        return got
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        problem = difference(a, b, tolerance=4.0)
        if problem:
            return f"gradient {number}: {problem}"
    return ""
