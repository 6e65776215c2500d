"""Patterns that fused ops replace: declared with the op, read by the fusion passes (`hal.compile.passes.fuse`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.layout import Spec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params, Specs


class AnyNumber:
    """A placeholder for a parameter that is read from the matched formula, such as `eps`."""

    def __repr__(self) -> str:
        return "any number"


ANY_NUMBER = AnyNumber()


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A formula in plain ops that becomes the op: its decomposition, or one of its `spellings`, in any order of operands.

    The functions are traced, so that nothing has to be written twice. Inner values must have no other users.
    """

    calls: Callable[[Spec], Iterable[tuple[Specs, Params]]]
    """Given the spec of a first result, the calls that may give it: specs of all inputs, and parameters or ANY_NUMBER."""
    example: tuple[int, ...] = (2, 3)
    """The shape of a result for which there are such calls."""


class Spelling(NamedTuple):
    """The result of a spelling if the op's operands are not just its own arguments. A node that makes an operand stays."""

    results: tuple[Any, ...]
    operands: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EpiloguePattern:
    """A chain of pointwise ops on the first result of one op becomes the op, if its other results have no users.

    The op's operands are those of the root, then the further tensors of the chain. It has parameters `steps` and `numbers`,
    and those of the root that the operands do not determine.
    """

    root: str
    """The op at the start of the chain, such as `matmul`."""
    spellings: Mapping[str, Callable[..., Any]]
    """Other ops that start a chain, as functions that apply the root and pointwise ops."""
    max_steps: int
    max_operands: int
    """Tensors in addition to the root's. Each takes registers for its address in the innermost part of every kernel."""
