"""Signature of a call to a captured function: properties of its arguments that are equal in all calls of one recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from polyhal.hal.compile.capture.tree import Tree

NODE = "node"
"""First element of the description of an inner node in a signature."""
TENSOR = "tensor"
"""First element of the properties of a tensor in a signature."""


class FlatCall(ABC):
    """The arguments of a call, flattened. Calls with equal `key` can share a recording; tensors and floats may differ.

    A frontend supplies its tensors and other leaves.
    """

    __slots__ = ("args", "host", "key", "kwargs", "memories", "parts", "tensors")

    tree: ClassVar[Tree] = Tree()

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], modes: tuple[Hashable, ...] = ()) -> None:
        """Flatten the arguments; `modes` are the modes of the thread. Raises CaptureError for arguments of other kinds."""
        self.args = args
        self.kwargs = kwargs
        self.tensors: list[Any] = []
        """Tensors on devices, in order."""
        self.host: list[Any] = []
        """Floats, and other values on the host that each run reads, in order."""
        self.parts: list[Hashable] = []
        self.memories: dict[int, int] = {}
        """Number of the first tensor in each memory: part of the signature, as an in-place write to one changes the others."""
        self._flatten(args)
        if kwargs:
            self._flatten(kwargs)
        self.key: tuple[Any, ...] = (tuple(self.parts), *modes)

    @abstractmethod
    def add_tensor(self, value: Any) -> bool:
        """Add a leaf that is a tensor, with its properties. Returns False, without effect, for other values."""

    @abstractmethod
    def add_value(self, value: Any) -> None:
        """Add another leaf, which must be equal in all calls. Raises CaptureError if it cannot be compared."""

    def mapped(self, tensor: Callable[[Any], Any], number: Callable[[float], Any]) -> tuple[Any, Any]:
        """Return the arguments with tensors and floats replaced, in order. Nodes without either are reused."""
        kinds = self.tensor_types

        def leaf(x: Any) -> Any:
            if isinstance(x, kinds):
                return tensor(x)
            return number(x) if type(x) is float else x

        args = tuple(self.tree.replaced(x, leaf) for x in self.args)
        return args, {k: self.tree.replaced(x, leaf) for k, x in self.kwargs.items()}

    tensor_types: ClassVar[type | tuple[type, ...]]
    """Types of leaves that `mapped` replaces as tensors."""

    @classmethod
    def described(cls, key: Any) -> str:
        """Describe the key of a call for messages."""
        return "(" + "; ".join(word for part in key[0] if (word := cls._word(part))) + ")"

    @staticmethod
    def tensor_word(properties: Any) -> str:
        """Describe the properties of a tensor that `add_tensor` added after `TENSOR`."""
        return ", ".join(map(str, properties))

    @classmethod
    def _word(cls, part: Any) -> str:
        if part is float:
            return "float"
        if part[0] == TENSOR:
            return cls.tensor_word(part[1:])
        return "" if part[0] == NODE else repr(part[1])

    def _flatten(self, value: Any) -> None:
        kind = type(value)
        node = self.tree.kinds[kind]
        if node is not None:
            self.parts.append((NODE, kind, node.keys(value)))
            for child in node.children(value):
                self._flatten(child)
        elif kind is float:
            self.host.append(value)
            self.parts.append(float)
        elif not self.add_tensor(value):
            self.add_value(value)
