"""Test whether two samples of random numbers come from one distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from tests.pytorch.convert import leaves

ENOUGH = 1000
_MOST_CALLS = 300
UNDEFINED = ("empty", "svd_lowrank", "pca_lowrank")
"""Ops, by the beginning of their names without a module, whose elements do not each follow one distribution."""


def elements(call: Callable[[], Any], dependent: bool) -> tuple[list[tuple[Any, ...]], torch.Tensor]:
    """Return shapes and dtypes of the results of a call, and elements of enough calls for a sample.

    If elements are `dependent` (for example dropped jointly), take one element of each call, each time another one.
    """
    shapes: list[tuple[Any, ...]] = []
    drawn: list[torch.Tensor] = []
    for number in range(_MOST_CALLS):
        with _other_seeds(number):
            results = [t.detach().cpu() for t in leaves(call()) if isinstance(t, torch.Tensor)]
        shapes = shapes or [(tuple(t.shape), str(t.dtype)) for t in results]
        parts = [t.flatten().to(torch.float64, copy=True) for t in results]  # in-place ops return the same tensor
        drawn += [p[7 * number % len(p)][None] if dependent and len(p) else p for p in parts]
        count = sum(t.numel() for t in drawn)
        if count >= ENOUGH or not count:
            break
    return shapes, torch.cat(drawn) if drawn else torch.empty(0)


def _other_seeds(number: int) -> Any:
    """Make the database set another seed before each call, instead of the same one."""
    start = torch.manual_seed
    return mock.patch.object(torch, "manual_seed", lambda seed: start(seed + number))


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference between the empirical distribution functions (Kolmogorov and Smirnov)."""
    places = torch.cat([a, b]).sort().values
    below = [torch.searchsorted(x.sort().values, places, right=True) / len(x) for x in (a, b)]
    return float((below[0] - below[1]).abs().max())


def difference(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], *, dependent: bool = False) -> str:
    """Describe the difference between results of random calls; empty if there is none. False alarms: one in a million."""
    (mine, drawn), (expected, reference) = elements(ours, dependent), elements(theirs, dependent)
    if mine != expected:
        return f"{mine}, expected {expected}"
    if not len(drawn) or not len(reference) or name.split(".")[-1].removeprefix("new_").startswith(UNDEFINED):
        return ""
    limit = 2.7 * math.sqrt(1 / len(drawn) + 1 / len(reference))  # 2 exp(-2 * 2.7 ** 2) is 1e-6
    found = distance(drawn, reference)
    return "" if found <= limit else f"the distributions are {found:.3f} apart, expected at most {limit:.3f}"
