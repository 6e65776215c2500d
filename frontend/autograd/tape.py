"""The tape: one node per recorded op, holding what its gradient rule asks for and nothing more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyhal.autograd import anomaly
from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.opdef import OpDef

if TYPE_CHECKING:
    from polyhal.hal.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.tensor import Tensor

_order = itertools.count()


class SavedOutput:
    """A result that its own gradient rule needs. Kept without the tensor, which would close a reference cycle."""

    __slots__ = ("buffer", "ref", "version")

    def __init__(self, out: Tensor) -> None:
        self.buffer: Buffer = out.buffer
        self.ref: Ref = out.ref
        self.version = out.buffer.version


class SavedInput:
    """An input that the gradient rule needs, and the version it had."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.version = tensor.buffer.version


class Node:
    """One recorded op.

    `parents[i]` is where the gradient of input i goes: (node, output number), a leaf tensor, or None.
    """

    __slots__ = ("device", "freed", "hooks", "line", "op", "order", "outputs", "params", "parents", "rule", "saved", "specs")

    def __init__(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Tensor, ...]) -> None:
        self.op = op
        self.params = params
        self.order = next(_order)
        self.device: Device = outs[0].device
        self.outputs: tuple[Spec, ...] = tuple(o.ref.spec for o in outs)
        self.parents = tuple(_parent(x) for x in inputs)
        self.specs: tuple[Spec | None, ...] = tuple(x.ref.spec if hasattr(x, "ref") else None for x in inputs)
        self.hooks: dict[int, dict[int, Callable[[Tensor], Tensor | None]]] | None = None
        self.freed = False
        self.rule: Callable[..., Any] | None = None
        """Replaces the op's own rule: for custom functions."""
        self.line = anomaly.user_line() if anomaly.state.enabled else ""
        self.saved: dict[str, Any] = {}
        if op.gradient is None:
            self.saved["inputs"] = tuple(_save(x) for x in inputs)
            return
        for name in op.needs:
            if name in op.inputs:
                if op.variadic:
                    self.saved[name] = tuple(_save(x) for x in inputs)
                else:
                    self.saved[name] = _save(inputs[op.inputs.index(name)])
            elif name in op.outputs:
                self.saved[name] = SavedOutput(outs[op.outputs.index(name)])

    def load(self, name: str) -> Any:
        """A saved value, checked to be unchanged. Raises AutogradError."""
        if self.freed:
            raise AutogradError(
                message(self.op.name, "the tape was freed by an earlier backward pass", fix="pass retain_graph=True to that pass")
            )
        return self._restore(self.saved[name], name)

    def _restore(self, saved: Any, name: str) -> Any:
        if isinstance(saved, tuple):
            return tuple(self._restore(s, name) for s in saved)
        if isinstance(saved, SavedInput):
            self._check(saved.tensor.buffer, saved.version, name)
            return saved.tensor
        if isinstance(saved, SavedOutput):
            self._check(saved.buffer, saved.version, name)
            out = dispatch.frontend.wrap(self.device, saved.buffer, saved.ref)
            out.requires_grad = True
            out.node = self
            out.index = self.op.outputs.index(name)
            return out
        return saved

    def _check(self, buffer: Buffer, version: int, name: str) -> None:
        if buffer.version != version:
            raise AutogradError(
                message(
                    self.op.name,
                    f"{name!r} was changed in place after it was saved for the gradient (version {version}, now {buffer.version})",
                    fix="use an op that returns a new tensor, or change it before it is used",
                )
            )

    def free(self) -> None:
        self.saved.clear()
        self.freed = True


def _parent(x: Any) -> Any:
    if not hasattr(x, "ref") or not x.requires_grad:
        return None
    return (x.node, x.index) if x.node is not None else x


def _save(x: Any) -> Any:
    return SavedInput(x) if hasattr(x, "ref") else x


def record(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Tensor, ...]) -> None:
    """Write an op on the tape, if any of its results can have a gradient."""
    if outs[0].ref.spec.dtype.kind != "float" or (op.gradient is None and op.decompose is None):
        return
    node = Node(op, inputs, params, outs)
    for i, out in enumerate(outs):
        if out.ref.spec.dtype.kind == "float":
            out.node = node
            out.index = i
            out.requires_grad = True


dispatch.frontend.record = record
