"""Random choices while a program is made: operands among the variables that exist, new leaves, axes, numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.reliability.programs.program import Leaf

INTEGERS = ("int64", "int32", "uint8", "int8")
_LIMIT = 200
"""Elements of a result."""


class UnfitError(Exception):
    """No variable suits a statement: another is tried."""


class Var(str):
    """The name of a variable, with the tensor that it is in PyTorch's run."""

    t: torch.Tensor

    def __new__(cls, name: str, tensor: torch.Tensor) -> Var:
        made = super().__new__(cls, name)
        made.t = tensor
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(self.t.shape)

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return self.t.ndim


class Style(NamedTuple):
    """Traits of a program, drawn once."""

    dtypes: tuple[str, ...]
    """Floating-point dtypes, the most frequent one several times."""
    special: bool
    """Some values are NaN, infinite or at the ends of ranges."""
    lengths: tuple[int, ...]
    """Lengths of axes."""
    writes: float
    """How often statements write in place, relative to the others."""
    gradients: bool
    """Leaves need gradients."""


def style(rng: random.Random, doubles: bool = True) -> Style:
    """Draw the traits of a program."""
    pools = [("float32",)] * 6 + [("float32", "float32", "float16")] + [("float32", "float32", "bfloat16")]
    pools += [("float32", "float32", "float64"), ("float64",)] if doubles else []
    lengths = rng.choice([(2, 3), (3, 4), (1, 3), (2, 4), (1, 2, 5), (0, 2, 3)])
    return Style(rng.choice(pools), rng.random() < 0.12, lengths, rng.choice([0.3, 1.0, 3.0]), rng.random() < 0.9)


class Draw:
    """Draws operands for one program."""

    def __init__(self, rng: random.Random, style: Style, variables: dict[str, Any]) -> None:
        self.rng = rng
        self.style = style
        self.variables = variables
        """All variables of the program so far, in PyTorch."""
        self.leaves: list[Leaf] = []
        self._values = np.random.default_rng(rng.getrandbits(32))
        self.on_leaf: Callable[[Leaf], Any]

    # Choices

    def one(self, among: Sequence[Any]) -> Any:
        """Draw one of several."""
        if not among:
            raise UnfitError
        return self.rng.choice(among)

    def chance(self, probability: float) -> bool:
        """Draw True with this probability."""
        return self.rng.random() < probability

    def number(self) -> float:
        """Draw a Python number."""
        return float(self.one((2, -1, 0.5, 0.3, -1.5, 3, 0.0, 1.0)))

    def axis(self, x: Var) -> int:
        """Draw an axis of x."""
        if not x.ndim:
            raise UnfitError
        return self.rng.randrange(-x.ndim, x.ndim)

    def axes(self, x: Var) -> tuple[int, ...]:
        """Draw some axes of x, at least one."""
        if not x.ndim:
            raise UnfitError
        return tuple(sorted(self.rng.sample(range(x.ndim), self.rng.randint(1, x.ndim))))

    def length(self) -> int:
        """Draw the length of an axis."""
        return int(self.one(self.style.lengths))

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        """Draw a shape of at least and at most so many axes."""
        axes = self.one([n for n in (0, 1, 1, 2, 2, 2, 3, 3, 4) if least <= n <= most])
        made = tuple(self.length() for _ in range(axes))
        return made if math.prod(made) <= _LIMIT else made[:2]

    # Operands

    def every(self, suits: Callable[[torch.Tensor], bool]) -> list[Var]:
        """Return all tensors that suit."""
        return [Var(n, t) for n, t in self.variables.items() if type(t) in _TENSORS and suits(t)]

    def tensor(self, suits: Callable[[torch.Tensor], bool] = lambda t: True) -> Var:
        """Draw a tensor that suits, more often a late one."""
        found = self.every(suits)
        if not found:
            raise UnfitError
        return found[-min(len(found), 1 + int(self.rng.expovariate(0.25)))] if self.chance(0.6) else self.one(found)

    def floats(self, least: int = 0, most: int = 9, *, nonempty: bool = False) -> Var:
        """Draw a floating-point tensor of so many axes, a new leaf if none exists."""

        def suits(t: torch.Tensor) -> bool:
            return t.is_floating_point() and least <= t.ndim <= most and (t.numel() > 0 or not nonempty)

        try:
            return self.tensor(suits)
        except UnfitError:
            shape = tuple(n or 2 for n in self.shape(least, most)) if nonempty else self.shape(least, most)
            return self.leaf(shape, self.one(self.style.dtypes))

    def fitting(self, shape: Sequence[int], dtype: torch.dtype) -> Var:
        """Draw a tensor of this shape and dtype, a new leaf if none exists."""
        wanted = tuple(shape)
        found = self.every(lambda t: t.dtype is dtype and t.shape == wanted)
        if found and self.chance(0.8):
            return Var(*_pair(self.one(found)))
        return self.leaf(wanted, str(dtype).removeprefix("torch."))

    def beside(self, x: Var) -> Var:
        """Draw a tensor that broadcasts with x. One without axes has the dtype of x: promotion of others differs by design."""

        def suits(t: torch.Tensor) -> bool:
            if t.dtype is not x.t.dtype and not (t.ndim and x.ndim and self.mixed):
                return False
            return _broadcast_elements(t.shape, shape) <= _LIMIT

        shape = x.shape
        self.mixed = self.chance(0.3)
        found = self.every(suits)
        if found and self.chance(0.85):
            return Var(*_pair(self.one(found)))
        shape = list(shape)
        for axis in range(len(shape)):
            if self.chance(0.25):
                shape[axis] = 1
        return self.leaf(tuple(shape[self.rng.randint(0, len(shape)) :] if self.chance(0.3) else shape), x)

    def mask(self, shape: Sequence[int]) -> Var:
        """Draw bools of this shape."""
        return self.fitting(shape, torch.bool)

    def index(self, shape: Sequence[int], below: int) -> Var:
        """Make a leaf of indices below a length."""
        if not below:
            raise UnfitError
        return self._add(tuple(shape), "int64", self._values.integers(0, below, tuple(shape)), False)

    # Leaves

    def leaf(self, shape: tuple[int, ...], dtype: str | Var) -> Var:
        """Make a leaf of this shape and dtype."""
        name = str(dtype.t.dtype).removeprefix("torch.") if isinstance(dtype, Var) else dtype
        if name.startswith("complex"):
            raise UnfitError
        return self._add(
            shape, name, self._drawn(shape, name), "float" in name and self.style.gradients and self.chance(0.6)
        )

    def _drawn(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        rng = self._values
        if dtype == "bool":
            return rng.random(shape) < 0.5
        if "float" not in dtype:
            return rng.integers(0 if dtype == "uint8" else -4, 5, shape)
        kind = self.rng.randrange(4)
        values = rng.standard_normal(shape) if kind else rng.integers(-2, 3, shape).astype(np.float64)
        if kind == 1:
            values = np.round(rng.uniform(0.1, 2, shape), 2)
        if self.style.special and self.chance(0.4) and values.size:
            flat = values.reshape(-1)
            flat[rng.integers(flat.size)] = self.one((math.nan, math.inf, -math.inf, -0.0, 6e4, 1e-3))
        return np.round(values, 3)

    def _add(self, shape: tuple[int, ...], dtype: str, values: np.ndarray, gradient: bool) -> Var:
        prefix = "p" if gradient and self.chance(0.4) else "x"
        leaf = Leaf(f"{prefix}{len(self.leaves)}", dtype, np.asarray(values), gradient)
        self.leaves.append(leaf)
        self.variables[leaf.name] = made = self.on_leaf(leaf)
        return Var(leaf.name, made)


_TENSORS = (torch.Tensor, torch.nn.Parameter)


def _broadcast_elements(a: Sequence[int], b: Sequence[int]) -> float:
    """Count the elements of the shape that two shapes broadcast to; infinite if they do not."""
    elements = 1
    for n, m in itertools.zip_longest(reversed(a), reversed(b), fillvalue=1):
        if n != m and 1 not in (n, m):
            return math.inf
        elements *= m if n == 1 else n
    return elements


def _pair(x: Var) -> tuple[str, torch.Tensor]:
    return str(x), x.t
