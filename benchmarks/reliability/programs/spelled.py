"""Polyhal under PyTorch's names: what a program finds as `torch`, `F`, `nn` and `optim` when it runs on Polyhal."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import polyhal
import polyhal.fft
import polyhal.linalg
import polyhal.special
from polyhal import autograd, nn, optim
from polyhal.nn import functional


def _extremum(positions: str) -> Callable[..., Any]:
    """Make extrema by their positions: the gradient goes only there, also where others are equal."""

    def function(x: Any, dim: int, keepdim: bool = False) -> Any:
        if not x.ndim:
            return polyhal.clone(x), getattr(polyhal, positions)(x)
        index = getattr(polyhal, positions)(x, dim, True)
        found = polyhal.take_along_dim(x, index, dim)
        return (found, index) if keepdim else (polyhal.squeeze(found, dim), polyhal.squeeze(index, dim))

    return function


def _spread(name: str) -> Callable[..., Any]:
    def function(x: Any, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> Any:
        return getattr(polyhal, name)(x, dim, correction=correction, keepdim=keepdim)

    return function


def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    return polyhal.sort(x, dim, descending), polyhal.argsort(x, dim, descending)


def _squeeze(x: Any, dim: int) -> Any:
    return polyhal.squeeze(x, dim) if x.ndim and x.shape[dim] == 1 else polyhal.reshape(x, x.shape)


def _checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool) -> Any:
    return autograd.checkpoint(function, *args)


class _Torch:
    """`torch`: the names that are spelled in another way, and Polyhal's own."""

    linalg = polyhal.linalg
    fft = polyhal.fft
    special = polyhal.special
    autograd = autograd
    max = staticmethod(_extremum("argmax"))
    min = staticmethod(_extremum("argmin"))
    std = staticmethod(_spread("std"))
    var = staticmethod(_spread("var"))
    sort = staticmethod(_sort)
    squeeze = staticmethod(_squeeze)
    utils = SimpleNamespace(checkpoint=SimpleNamespace(checkpoint=_checkpoint))
    bool = polyhal.bool_

    def __getattr__(self, name: str) -> Any:
        return getattr(polyhal, name)


TORCH = _Torch()
NAMES = {"torch": TORCH, "F": functional, "nn": nn, "optim": optim}
