"""Gradients of elements that a reduction chooses, in half and single precision, as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import Device

DTYPES = ("float16", "bfloat16", "float32")
CHOICES: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: x.median(-1),
    "kthvalue": lambda x: x.kthvalue(3, -1),
    "mode": lambda x: x.mode(-1),
    "topk": lambda x: x.topk(2, -1),
    "cummax": lambda x: x.cummax(-1),
}
VALUES = np.array([[3.0, 1.0, 2.0, -5.0], [5.0, 4.0, 6.0, 0.5], [-1.0, -2.0, -0.5, 8.0]])
WEIGHTS = np.array([[0.5, 2.0, 3.0, 4.0], [1.0, 0.25, 2.5, 8.0], [16.0, 0.125, 1.5, 6.0]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CHOICES)
def test_gradients_go_to_the_elements_that_were_chosen(device: Device, name: str, dtype: str) -> None:
    x = ph.tensor(VALUES, dtype=getattr(ph, dtype), device=device, requires_grad=True)
    expected = torch.tensor(VALUES, dtype=getattr(torch, dtype), requires_grad=True)
    for leaf, library in ((x, ph), (expected, torch)):
        values = CHOICES[name](leaf).values
        weights = WEIGHTS.reshape(-1)[: int(np.prod(values.shape))].reshape(tuple(values.shape))
        of = {"device": device} if library is ph else {}
        (values * library.tensor(weights, dtype=getattr(library, dtype), **of)).sum().backward()
    assert x.grad is not None
    assert expected.grad is not None
    # Every weight is a number of 5 bits, and none is added to another: the gradients are exact.
    assert x.grad.to(ph.float32).tolist() == expected.grad.float().tolist()
