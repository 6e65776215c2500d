"""Trees of arguments and results of captured functions, in which complex tensors are nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyhal.hal.compile.capture.tree import NodeKind, Tree
from polyhal.tensor import Tensor
from polyhal.tensor.complex_tensor import ComplexTensor, paired


@dataclass(frozen=True, slots=True)
class ComplexParts:
    """Placeholder for the parts of a complex tensor in a tree whose leaves are not tensors."""

    real: Any
    imag: Any


def _paired(_: Tensor | ComplexParts, parts: list[Any]) -> Any:
    return paired(*parts) if all(isinstance(x, Tensor) for x in parts) else ComplexParts(*parts)


_COMPLEX = NodeKind(lambda x: (x.real, x.imag), lambda x: ("real", "imag"), _paired)


class _TensorTree(Tree):
    def kind_of(self, kind: type) -> NodeKind | None:
        return _COMPLEX if issubclass(kind, (ComplexTensor, ComplexParts)) else super().kind_of(kind)


TREE = _TensorTree()
map_tree = TREE.map
