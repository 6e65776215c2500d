"""The libraries that run programs: PyTorch in the program's dtypes or in double precision, on a device, and Polyhal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
import torch.utils.checkpoint
from torch.nn import functional

import polyhal
from benchmarks.reliability.programs import spelled
from benchmarks.reliability.programs.ops import families
from benchmarks.reliability.programs.program import DOUBLES, Leaf, Statement


class Value(NamedTuple):
    """A tensor at the end of a call."""

    array: np.ndarray
    """Elements in double precision, or as integers or bools."""
    dtype: str
    requires_grad: bool


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Round values to a dtype; float16 and bfloat16 become float32."""
    if dtype == "bfloat16":
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    return values.astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    """Copy elements, in row-major order, to the widest dtype of their kind: later calls write to state, such as counts."""
    if array.dtype == ml_dtypes.bfloat16 or array.dtype.kind == "f":
        return array.astype(np.float64, order="C")
    return array.astype(np.complex128, order="C") if array.dtype.kind == "c" else array.copy()


class Library:
    """A library that runs programs. Names of a program's text are in `names`."""

    names: dict[str, Any]

    def tensor(self, leaf: Leaf, values: np.ndarray) -> Any:
        """Make a leaf of the values."""
        raise NotImplementedError

    def value(self, tensor: Any) -> Value:
        """Return the elements of a tensor and facts about it."""
        raise NotImplementedError

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a tensor of this library."""
        raise NotImplementedError

    def module(self, module: Any) -> Any:
        """Move a new module to the library's dtype and device."""
        return module

    def fill(self, parameter: Any, values: np.ndarray) -> None:
        """Overwrite a parameter."""
        raise NotImplementedError

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Apply settings while a program runs."""
        yield

    @contextlib.contextmanager
    def mistaken(self) -> Iterator[None]:
        """Apply settings while a mistake runs, a statement that must fail."""
        yield

    def begin(self, variables: dict[str, Any]) -> None:
        """Follow the start of a call, with the leaves. No-op: some libraries watch."""

    def after(self, statement: Statement, variables: dict[str, Any]) -> None:
        """Follow a statement, with all variables. No-op: some libraries watch."""


_RUN = torch.autograd._engine_run_backward


def _retain(roots: Any, gradients: Any, retain_graph: bool, *rest: Any, **more: Any) -> Any:
    return _RUN(roots, gradients, True, *rest, **more)


@contextlib.contextmanager
def _retaining(always: bool) -> Iterator[None]:
    """Keep the graphs of backward passes, or leave that to their arguments."""
    before, torch.autograd._engine_run_backward = torch.autograd._engine_run_backward, _retain if always else _RUN
    try:
        yield
    finally:
        torch.autograd._engine_run_backward = before


class PyTorch(Library):
    """PyTorch in the dtypes of the program, on the CPU or on a device.

    A `lenient` run computes calls that PyTorch refuses: backward passes after writes, with values as they were saved, and
    second ones.
    """

    def __init__(self, device: str = "cpu", *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.device = torch.device(device)
        self.names = {"torch": torch, "F": functional, "nn": torch.nn, "optim": torch.optim}

    def tensor(self, leaf: Leaf, values: np.ndarray) -> torch.Tensor:
        made = torch.tensor(rounded(values, leaf.dtype), dtype=self.dtype(leaf.dtype), device=self.device)
        return made.requires_grad_(leaf.requires_grad)

    def dtype(self, name: str) -> torch.dtype:
        """Return the dtype of that name."""
        found: torch.dtype = getattr(torch, name)
        return found

    def module(self, module: Any) -> Any:
        return module.to(self.device)

    def fill(self, parameter: Any, values: np.ndarray) -> None:
        with torch.no_grad():
            parameter.copy_(torch.tensor(values))

    def value(self, tensor: torch.Tensor) -> Value:
        array = tensor.detach().cpu()
        name = str(tensor.dtype).removeprefix("torch.")
        if array.dtype in (torch.bfloat16, torch.float16):
            array = array.double()
        return Value(wide(array.numpy(force=True)), name, tensor.requires_grad)  # of zeros without memory, too

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def after(self, statement: Statement, variables: dict[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):
            self.refresh(variables)

    def refresh(self, variables: dict[str, Any]) -> None:
        """Look at the node of each tensor: before that, PyTorch takes a view for a leaf after a write to its base. Raises
        RuntimeError if there is a view that PyTorch will not follow."""
        for name, t in variables.items():
            if name[-1].isdigit() and isinstance(t, torch.Tensor):
                t.grad_fn  # noqa: B018

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with contextlib.ExitStack() as settings:
            if self.device.type != "cpu":
                settings.enter_context(self.device)
            if self.lenient:
                # Writes do not reach copies.
                settings.enter_context(torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda t: t))
                settings.enter_context(_retaining(True))
            yield

    @contextlib.contextmanager
    def mistaken(self) -> Iterator[None]:
        with _retaining(False) if self.lenient else contextlib.nullcontext():
            yield


class _DoubleTorch:
    """`torch` with float64 for all floating-point dtypes."""

    float16 = bfloat16 = float32 = float64 = torch.float64
    complex64 = complex128 = torch.complex128

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


SUMS = frozenset(call.op for name in ("reduction", "contraction", "networks") for call in families()[name]) | {"module"}
"""Ops with errors of some units of their operands, not only of their results."""


class Double(PyTorch):
    """PyTorch with all floating-point numbers in double precision: the truth.

    `unit` makes it a run with errors: after each statement its results are off by random amounts of so many units in the last
    place of the dtypes that they have in the program. How far such runs are from one another is the program's condition.
    """

    def __init__(self, unit: float = 0.0, seed: int = 0, *, lenient: bool = False) -> None:
        super().__init__(lenient=lenient)
        self.names = self.names | {"torch": _DoubleTorch()}
        self.unit = unit
        self.random = torch.Generator().manual_seed(seed)

    def tensor(self, leaf: Leaf, values: np.ndarray) -> torch.Tensor:
        kept = rounded(values, leaf.dtype)
        made = torch.tensor(kept, dtype=self.dtype(DOUBLES.get(leaf.dtype, leaf.dtype)))
        if self.unit:
            self.nudge(made)
        return made.requires_grad_(leaf.requires_grad)

    def module(self, module: Any) -> Any:
        return module.double()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        torch.set_default_dtype(torch.float64)
        try:
            with super().running():
                yield
        finally:
            torch.set_default_dtype(torch.float32)

    def after(self, statement: Statement, variables: dict[str, Any]) -> None:
        super().after(statement, variables)
        if self.unit:
            scale = 0.0
            if statement.op in SUMS:
                scale = max((_largest(variables.get(n)) for n in statement.operands), default=0.0)
            for name in statement.targets or statement.operands:
                if isinstance(variables.get(name), torch.Tensor):
                    self.nudge(variables[name], scale)

    def nudge(self, tensor: torch.Tensor, scale: float = 0.0) -> None:
        """Change elements a little, without a trace on the tape: relative to themselves, and to the operands of a sum."""
        t = tensor.data
        if t.is_floating_point() and t.numel() and 0 not in t.stride():
            factor, term = 2 * torch.rand((2, *t.shape), generator=self.random, dtype=torch.float64) - 1
            t.mul_(1 + self.unit * factor)
            if scale:
                t.add_(self.unit * scale * term)


def _largest(x: Any) -> float:
    """Return the largest finite magnitude in a tensor; 0 for other values."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
        return 0.0
    return float(torch.nan_to_num(x.detach(), 0.0, 0.0, 0.0).abs().max())


class Polyhal(Library):
    """Polyhal on one of its devices."""

    def __init__(self, device: polyhal.Device) -> None:
        self.device = device
        self.names = dict(spelled.NAMES)

    def tensor(self, leaf: Leaf, values: np.ndarray) -> polyhal.Tensor:
        dtype = getattr(polyhal, "bool_" if leaf.dtype == "bool" else leaf.dtype)
        kept = rounded(values, leaf.dtype)
        return polyhal.tensor(kept, dtype=dtype, device=self.device, requires_grad=leaf.requires_grad)

    def module(self, module: Any) -> Any:
        return module.to(self.device)

    def fill(self, parameter: Any, values: np.ndarray) -> None:
        with polyhal.no_grad():
            parameter.copy_(polyhal.tensor(values, device=self.device))

    def value(self, tensor: polyhal.Tensor) -> Value:
        array = np.asarray(tensor.detach().numpy())
        return Value(wide(array), tensor.dtype.name.rstrip("_"), tensor.requires_grad)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, polyhal.Tensor)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        from polyhal.hal.core import dispatch

        with dispatch.default_device(self.device):
            yield
