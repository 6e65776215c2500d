"""PyTorch with all new tensors in row-major order: tells differences that only the layouts of its results make.

In PyTorch the result of an elementwise op on a permuted tensor is permuted, too, and factors of matrices are column-major.
`reshape`, `flatten` and `contiguous` of them are copies where they are views here, or the other way round, so that a later
write reaches other tensors.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from benchmarks.reliability.programs import rerun
from benchmarks.reliability.programs.difference import Difference, WrongValue
from benchmarks.reliability.programs.execute import tensors_of
from benchmarks.reliability.programs.libraries import Double
from benchmarks.reliability.programs.program import Program, Statement

_NEARER = 1e-2
"""An element agrees with a run if it is so much nearer to it than to the other one."""


class _NewTensors(TorchDispatchMode):
    """Below autograd, copies each result in new memory that is not in row-major order."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        taken = {_memory(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}

        def in_order(x: Any) -> Any:
            is_new = isinstance(x, torch.Tensor) and _memory(x) not in taken
            return x.contiguous() if is_new else x

        return tree_map(in_order, func(*args, **(kwargs or {})))


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata


class RowMajor(Double):
    """PyTorch in double precision with all new tensors in row-major order, each in memory of its own."""

    def after(self, statement: Statement, variables: dict[str, Any]) -> None:
        """Copy gradients that are a broadcast of one element, and views of all memory that no other tensor is in."""
        super().after(statement, variables)
        made = {n: x for n in statement.targets if isinstance(x := variables.get(n), torch.Tensor)}
        seen = Counter(_memory(x) for _, x in tensors_of(variables, self))
        for name, x in made.items():
            is_broadcast = "autograd.grad(" in statement.text and 0 in x.stride() and x.numel() > 1
            if seen[_memory(x)] == 1 and (is_broadcast or (x._is_view() and x.is_contiguous())):
                variables[name] = x.clone(memory_format=torch.contiguous_format)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with super().running(), _NewTensors():
            yield


def layout_of_pytorch(program: Program, difference: Difference) -> bool:
    """A value that PyTorch computes as well, if its new tensors are row-major: all wrong elements agree with that run."""
    if not isinstance(difference, WrongValue):
        return False
    found = rerun.elements(program, RowMajor(), difference)
    if found is None:
        return False
    with np.errstate(all="ignore"):
        ours, theirs, in_order = (x.astype(np.float64) for x in (difference.ours, difference.theirs, found))
        same = (ours == in_order) | (np.isnan(ours) & np.isnan(in_order))
        return bool((same | (np.abs(ours - in_order) <= _NEARER * np.abs(ours - theirs))).all())
