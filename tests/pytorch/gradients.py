"""Gradients and second gradients of the same weighted sum of results, here and in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

import polyhal
from polyhal import Tensor
from tests.pytorch.compare import difference, to_torch
from tests.pytorch.convert import leaves, to_polyhal


def torch_gradients(results: Any, inputs: Any, *, second: bool = False) -> list[torch.Tensor]:
    """Return PyTorch's gradients of a weighted sum of all results, one per input that requires one; zeros without a path.

    `second` appends the gradients of a weighted sum of the gradients, unless PyTorch has no such derivative.
    """
    wanted = [t for t in leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t for t in leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not outputs:
        return []
    found = torch.autograd.grad(
        outputs, wanted, _weights(outputs), allow_unused=True, retain_graph=True, create_graph=second
    )
    dense = [g if g is None or g.layout is torch.strided else g.to_dense() for g in found]
    first = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, dense, strict=True)]
    if not second:
        return first
    try:
        return [*(g.detach() for g in first), *_again(first, wanted)]
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise
        return [g.detach() for g in first]


def _again(first: list[torch.Tensor], wanted: list[torch.Tensor]) -> list[torch.Tensor]:
    connected = [(g, w) for g, w in zip(first, _weights(first), strict=True) if g.requires_grad]
    found: Any = [None] * len(wanted)
    if connected:
        outputs, weights = zip(*connected, strict=True)
        found = torch.autograd.grad(outputs, wanted, weights, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


def polyhal_gradients(results: Any, inputs: Any, theirs: Any, *, second: bool = False) -> list[Any] | str:
    """Polyhal's gradients of the same sums, or why there are none. `theirs` are PyTorch's results."""
    wanted = [t for t in leaves(inputs) if isinstance(t, Tensor) and t.requires_grad]
    outputs = [t for t in leaves(results) if isinstance(t, Tensor) and t.requires_grad]
    expected = [t for t in leaves(theirs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not expected:
        return []
    if len(outputs) != len(expected):
        return f"{len(outputs)} results carry gradients, expected {len(expected)}"
    weights = [to_polyhal(w, outputs[0].device) for w in _weights(expected)]
    found = polyhal.grad(outputs, wanted, weights, allow_unused=True, retain_graph=True, create_graph=second)
    first = [polyhal.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]
    if not second:
        return first
    weights = [to_polyhal(w, outputs[0].device) for w in _weights([to_torch(g) for g in first])]
    connected = [(g, w) for g, w in zip(first, weights, strict=True) if g.requires_grad]
    again: Any = [None] * len(wanted)
    if connected:
        sums, chosen = zip(*connected, strict=True)
        again = polyhal.grad(sums, wanted, chosen, allow_unused=True, retain_graph=True)
    return [
        *(g.detach() for g in first),
        *(polyhal.zeros_like(x) if g is None else g for x, g in zip(wanted, again, strict=True)),
    ]


def _weights(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(t.shape, generator=generator, dtype=_double(t)).to(t.device, t.dtype) for t in outputs]


def _double(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def gradient_difference(ours: Any, theirs: Any, our_inputs: Any, their_inputs: Any, *, second: bool = False) -> str:
    """Describe the difference of gradients of one weighted sum of all results, and of `second` gradients."""
    expected = torch_gradients(theirs, their_inputs, second=second)
    got = polyhal_gradients(ours, our_inputs, theirs, second=second)
    if isinstance(got, str):
        return got
    half = len(got) // 2 if second else len(got)
    for number, (a, b) in enumerate(zip(got[: len(expected)], expected, strict=True)):
        problem = difference(a, b, tolerance=4.0 if number < half else 16.0)
        if problem:
            return f"{'second ' * (number >= half)}gradient {number % max(half, 1)}: {problem}"
    return ""
