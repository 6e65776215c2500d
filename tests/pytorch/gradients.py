"""Gradients of the same weighted sum of results, here and in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

import polyhal
from polyhal import Tensor
from tests.pytorch.compare import difference
from tests.pytorch.convert import leaves, to_polyhal


def gradient_difference(ours: Any, theirs: Any, our_inputs: Any, their_inputs: Any) -> str:
    """What differs between gradients of the same weighted sum of all results."""
    wanted = [t for t in leaves(their_inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t for t in leaves(theirs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not outputs:
        return ""
    mine = [t for t in leaves(our_inputs) if isinstance(t, Tensor) and t.requires_grad]
    results = [t for t in leaves(ours) if isinstance(t, Tensor) and t.requires_grad]
    if len(results) != len(outputs):
        return f"{len(results)} results carry gradients, expected {len(outputs)}"
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in outputs]
    expected = torch.autograd.grad(outputs, wanted, weights, allow_unused=True)
    got = polyhal.grad(results, mine, [to_polyhal(w, results[0].device) for w in weights], allow_unused=True)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        zero = torch.zeros_like(wanted[number])
        problem = difference(
            zero if a is None else a,
            zero if b is None else b.to_dense() if b.layout is not torch.strided else b,
            tolerance=4.0,
        )
        if problem:
            return f"gradient {number}: {problem}"
    return ""
