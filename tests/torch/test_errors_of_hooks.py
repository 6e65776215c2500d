"""Errors that a program's own code raises in a backward pass on the device reach the caller, and the process lives on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _MyError(Exception):
    pass


def _raise(*_: Any) -> Any:
    raise _MyError("mine")


class _RaisesInBackward(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _raise() if torch._C._current_autograd_node() else func(*args, **(kwargs or {}))


def _hook_of_a_result(x: torch.Tensor) -> None:
    y = x * 2
    y.register_hook(_raise)
    y.sum().backward()


def _hook_of_a_leaf(x: torch.Tensor) -> None:
    x.register_hook(_raise)
    torch.autograd.grad((x * 2).sum(), x)


def _hook_of_a_node(x: torch.Tensor) -> None:
    y = (x * 2).sum()
    y.grad_fn.register_prehook(_raise)  # type: ignore[union-attr]
    y.backward()


def _mode(x: torch.Tensor) -> None:
    y = x.sin().sum()
    with _RaisesInBackward():
        y.backward()


@pytest.mark.parametrize("program", [_hook_of_a_result, _hook_of_a_leaf, _hook_of_a_node, _mode])
def test_an_error_raised_in_a_backward_pass_reaches_the_caller(
    torch_on_numpy: str, program: Callable[[torch.Tensor], None]
) -> None:
    for _ in range(2):
        x = torch.ones(3, device=torch_on_numpy, requires_grad=True)
        with pytest.raises(_MyError, match="mine"):
            program(x)
        y = torch.ones(3, device=torch_on_numpy, requires_grad=True)
        (gradient,) = torch.autograd.grad((y * 2).sum(), y)
        assert gradient.tolist() == [2, 2, 2]
