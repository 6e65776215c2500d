"""The tape: one node per recorded op, holding what its gradient rule asks for and nothing more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.opdef import OpDef

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.buffer import Buffer
    from polyhal.tensor import Tensor

_order = itertools.count()


class SavedOutput(NamedTuple):
    """A result that its own gradient rule needs. Kept without the tensor, which would close a reference cycle."""

    buffer: Buffer
    ref: Ref
    version: int


class SavedInput(NamedTuple):
    """An input that the gradient rule needs, and the version it had."""

    tensor: Any
    version: int


class Node:
    """One recorded op.

    `parents[i]` is where the gradient of input i goes: (node, output number), a leaf tensor, or None.
    """

    __slots__ = (
        "device",
        "freed",
        "hooks",
        "line",
        "op",
        "order",
        "outputs",
        "params",
        "parents",
        "region",
        "rule",
        "saved",
        "specs",
    )

    parents: list[Any]
    specs: list[Spec | None]
    saved: dict[str, Any]
    hooks: dict[int, dict[int, Callable[[Tensor], Tensor | None]]] | None
    rule: Callable[..., Any] | None
    """Replaces the op's own rule: for custom functions."""
    region: tuple[Any, int] | None
    """The checkpointed region that can compute again what is saved here, and the node's place in it."""

    def __init__(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Tensor, ...]) -> None:
        self.op = op
        self.params = params
        self.order = next(_order)
        self.device: Device = outs[0].device
        self.outputs = [o.ref.spec for o in outs]
        parents: list[Any] = []
        specs: list[Spec | None] = []
        self.parents = parents
        self.specs = specs
        for x in inputs:
            try:
                specs.append(x.ref.spec)
            except AttributeError:  # a number, or an absent input
                specs.append(None)
                parents.append(None)
                continue
            if not x.requires_grad:
                parents.append(None)
            else:
                parents.append(x if x.node is None else (x.node, x.index))
        self.hooks = None
        self.freed = False
        self.rule = None
        self.region = None
        self.line = ""
        self.saved = saved = {}
        if op.gradient is None:
            saved["inputs"] = tuple(_save(x) for x in inputs)
            return
        for name in op.saves_inputs:
            saved[name] = tuple(_save(x) for x in inputs) if op.variadic else _save(inputs[op.inputs.index(name)])
        for name in op.saves_outputs:
            out = outs[op.outputs.index(name)]
            saved[name] = SavedOutput(out.buffer, out.ref, out.buffer.version)
        if len(op.outputs) > 1 and op.decompose is not None:
            # A gradient may come in through an output that the rule knows nothing of; then the decomposition is used.
            saved["inputs"] = tuple(_save(x) for x in inputs)

    def restore(self) -> None:
        """Have at hand what is saved, also what a checkpointed region let go."""
        if self.region is not None:
            region, place = self.region
            self.region = None
            self.saved = region.saved(place)

    def load(self, name: str) -> Any:
        """A saved value, checked to be unchanged. Raises AutogradError."""
        if self.freed:
            raise AutogradError(
                message(
                    self.op.name,
                    "the tape was freed by an earlier backward pass",
                    fix="pass retain_graph=True to that pass",
                )
            )
        return self._restore(self.saved[name], name)

    def _restore(self, saved: Any, name: str) -> Any:
        if type(saved) is tuple:
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
                    f"{name!r} was changed in place after it was saved for the gradient "
                    f"(version {version}, now {buffer.version})",
                    fix="use an op that returns a new tensor, or change it before it is used",
                )
            )

    def free(self) -> None:
        self.saved.clear()
        self.region = None
        self.freed = True


def _save(x: Any) -> Any:
    return SavedInput(x, x.buffer.version) if hasattr(x, "ref") else x


def record(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], outs: tuple[Tensor, ...]) -> None:
    """Put an op on the tape, if any of its results can have a gradient."""
    if outs[0].ref.spec.dtype.kind != "float" or (op.gradient is None and op.decompose is None):
        return
    node = Node(op, inputs, params, outs)
    thread = dispatch.thread
    thread.executor.add_to_tape(node)
    if thread.region is not None:
        thread.region.add(node)
    if len(outs) == 1:
        out = outs[0]
        out.node = node
        out.requires_grad = True
        return
    for i, out in enumerate(outs):
        if out.ref.spec.dtype.kind == "float":
            out.node = node
            out.index = i
            out.requires_grad = True
