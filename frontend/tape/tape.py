"""The tape: one node per op that needs gradients, with only the values that its gradient rule requires."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.location import UNKNOWN, SourceLocation
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.gradient_rule import DECOMPOSED, NOTHING
from polyhal.hal.ops.opdef import OpDef
from polyhal.tape.hooks import Hook
from polyhal.tape.ownership import share
from polyhal.tape.saved_copies import copy_before_write

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.tape.checkpoint import Region
    from polyhal.tensor import Tensor

Edge: TypeAlias = "tuple[GradNode, int] | Tensor"
"""Where a gradient goes: to an output of a node, by number, or to a leaf."""

_order = itertools.count()


def position() -> int:
    """Return a number above the `order` of all nodes so far, and below the `order` of all later ones."""
    return next(_order)


class SavedOutput(NamedTuple):
    """A result that its own gradient rule needs. Saved without the tensor, which would close a reference cycle."""

    buffer: Buffer
    ref: Ref
    version: int


class SavedInput(NamedTuple):
    """An input that the gradient rule needs, and its version when it was saved."""

    tensor: Any
    version: int


class GradNode:
    """One op on the tape."""

    __slots__ = (
        "__weakref__",
        "device",
        "freed",
        "fresh",
        "hooks",
        "is_view",
        "location",
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

    device: Device
    fresh: bool
    """True if `rule` returns memory that nobody else keeps."""
    hooks: dict[int, dict[int, Hook]] | None
    """Hooks of outputs, by number."""
    is_view: bool
    """True if the result is a view for programs: of memory that other tensors use, too (see `own` in hal/ops/returns.py)."""
    location: SourceLocation
    """The user's line that called the op, as far as an executor notes it: where steps are recorded or checked."""
    outputs: list[Spec]
    parents: list[Edge | None]
    """Where the gradient of each input goes; None for inputs without."""
    region: tuple[Region[Any], int] | None
    """The checkpointed region that can compute `saved` again, and the node's position in it."""
    rule: Callable[..., Any] | None
    """The gradient rule of a custom function, in place of the op's."""
    saved: dict[str, Any]
    specs: list[Spec | None]
    """Of the inputs; None for numbers and absent ones."""

    def __init__(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Tensor, ...]) -> None:
        self.op = op
        self.params = params
        self.fresh = self.freed = False
        self.hooks = self.region = self.rule = None
        self.is_view = op.view is not None
        self.location = UNKNOWN
        self.device = outs[0].device
        self.outputs = [outs[0].ref.spec] if len(outs) == 1 else [o.ref.spec for o in outs]
        parents: list[Edge | None] = []
        specs: list[Spec | None] = []
        self.parents, self.specs = parents, specs
        self.saved = saved = {}
        mask, bit = 0, 1
        for x in inputs:
            if not hasattr(x, "ref"):  # a number, or an absent input
                specs.append(None)
                parents.append(None)
            else:
                specs.append(x.ref.spec)
                if x.requires_grad:
                    parents.append(x if x.node is None else edge_of(x))
                    mask += bit
                else:
                    parents.append(None)
            bit += bit
        self.order = next(_order)  # after `edge_of`, which may put an input on the tape once more
        rule, schema = op.gradient, op.schema
        if rule is not None:
            kept = rule.saved[1 if schema.variadic else mask]
            if kept is not NOTHING:
                for name, i in kept.inputs:
                    saved[name] = tuple([_save(x) for x in inputs]) if schema.variadic else _save(inputs[i])
                for name, i in kept.outputs:
                    out = outs[i]
                    saved[name] = SavedOutput(out.buffer, out.ref, out.buffer.version)
                    if rule.copies:
                        copy_before_write(out.buffer, self, name)
                if kept.others and may_use_decomposition(op, self.outputs):
                    _save_others(op, inputs, params, self.outputs, mask, kept.others, saved)
        elif op.decompose is not None:
            saved["inputs"] = _saved_for_decomposition(op, inputs, params, self.outputs, mask)

    def restore(self) -> None:
        """Recompute the dropped values of a checkpointed region."""
        if self.region is not None:
            region, position = self.region
            self.saved = region.saved(position)

    def load(self, name: str) -> Any:
        """Return a saved value, checked to be unchanged. Raises AutogradError."""
        self.require_tape()
        return self._restore(self.saved[name], name)

    def load_inputs(self) -> tuple[Any, ...]:
        """Return the saved inputs, for gradients of the op's decomposition. Raises AutogradError."""
        self.require_tape()
        saved, schema = self.saved, self.op.schema
        if "inputs" in saved or schema.variadic:
            inputs: tuple[Any, ...] = self.load("inputs" if "inputs" in saved else schema.inputs[0])
            return inputs
        found = [(name, saved[name] if name in saved else saved[DECOMPOSED + name]) for name in schema.inputs]
        return tuple([self._restore(value, name, i) for i, (name, value) in enumerate(found)])

    def require_tape(self) -> None:
        """Raise AutogradError if the node was freed."""
        if self.freed:
            raise AutogradError(
                message(
                    self.op.name,
                    "the tape was freed by an earlier backward pass",
                    fix="pass retain_graph=True to that pass",
                )
            )

    def _restore(self, saved: Any, name: str, position: int = -1) -> Any:
        if type(saved) is tuple:
            return tuple(self._restore(s, name, i) for i, s in enumerate(saved))
        if isinstance(saved, SavedInput):
            self._check(saved.tensor.buffer, saved.version, name)
            if saved.tensor.buffer.version != saved.version:
                self._check_shape(saved.tensor, name, position)
            share(saved.tensor)
            return saved.tensor
        if isinstance(saved, SavedOutput):
            self._check(saved.buffer, saved.version, name)
            out = dispatch.frontend.wrap(self.device, saved.buffer, saved.ref)
            share(out)
            if out.dtype.kind == "float" and self._leads_to(name):
                out.requires_grad = True
                out.node = self
                out.index = self.op.schema.outputs.index(name)
            return out
        return saved

    def _leads_to(self, output: str) -> bool:
        """Return whether a saved output depends on an input that requires a gradient."""
        inputs = self.op.gradient.depends.get(output) if self.op.gradient else None
        return inputs is None or any(self.parents[i] is not None for i in inputs if i < len(self.parents))

    def _check(self, buffer: Buffer, version: int, name: str) -> None:
        if buffer.version != version and not _only_reshaped(buffer, version):
            raise AutogradError(
                message(
                    self.op.name,
                    f"{name!r} was changed in place after it was saved for the gradient "
                    f"(version {version}, now {buffer.version})",
                    fix="use an op that returns a new tensor, or change it before it is used",
                )
            )

    def _check_shape(self, x: Tensor, name: str, position: int) -> None:
        """Raise AutogradError if an input changed its shape in place after it was saved."""
        inputs = self.op.schema.inputs
        position = position if position >= 0 else inputs.index(name)
        if x.ref.spec != self.specs[position]:
            raise AutogradError(
                message(
                    self.op.name,
                    f"an input changed its shape in place after it was saved for the gradient: it was "
                    f"{self.specs[position]}, and is {x.ref.spec}",
                    fix="use the function that returns a view, without the underscore",
                )
            )

    def drop_recomputed(self) -> None:
        """Drop the saved values that a checkpointed region can compute again, as after each pass over a retained graph."""
        if self.region is not None:
            self.saved = {}

    def free(self) -> None:
        """Drop saved tensors, so that their memory is free during the rest of the backward pass.

        A node without them, such as one of a view, a sum or a product with a number, may be visited again.
        """
        if self.region is None and self.rule is None and not any(map(holds_memory, self.saved.values())):
            return
        self.freed = True
        self.saved.clear()
        self.region = None


def holds_memory(saved: Any) -> bool:
    """Return whether a saved value is a tensor, or a tuple with one."""
    if type(saved) is tuple:
        return any(map(holds_memory, saved))
    return type(saved) is SavedInput or type(saved) is SavedOutput


def _only_reshaped(buffer: Buffer, version: int) -> bool:
    """Return whether no element was written since that version."""
    reshapes = getattr(buffer, "reshapes", ())
    return all(v in reshapes for v in range(version + 1, buffer.version + 1))


def keeps_memory(result: Tensor, buffer: Buffer, start: int) -> bool:
    """Return whether a node that was recorded after `start`, and that `result` depends on, saved an input in `buffer`."""
    waiting = [result.node]
    while waiting:
        node = waiting.pop()
        if node is None or node.order <= start:
            continue
        for saved in node.saved.values():
            kept = saved if type(saved) is tuple else (saved,)
            if any(isinstance(s, SavedInput) and s.tensor.buffer is buffer for s in kept):
                return True
        waiting += [edge[0] for edge in node.parents if isinstance(edge, tuple)]
    return False


def edge_of(x: Any) -> Edge:
    """Where the gradient of a tensor goes that requires one."""
    if x.node is None:
        leaf: Edge = x
        return leaf
    if x.buffer.version:
        # Rare, except for parameters, which are leaves.
        from polyhal.tape.rebase import refreshed

        x = refreshed(x)
    return (x.node, x.index)


def _saved_for_decomposition(
    op: OpDef, inputs: Inputs, params: ParamValues, outs: Sequence[Spec], mask: int
) -> tuple[Any, ...]:
    """Return the inputs that the gradients of the op's decomposition read; `UNSAVED` in place of the others."""
    from polyhal.tape.derived import UNSAVED, inputs_read

    specs = tuple(dispatch.inference_spec(x) for x in inputs)
    read = inputs_read(op, specs, dispatch.freeze(params), tuple(outs), mask)
    return tuple([_save(x) if read >> i & 1 or not hasattr(x, "ref") else UNSAVED for i, x in enumerate(inputs)])


def _save_others(
    op: OpDef,
    inputs: Inputs,
    params: tuple[float, ...],
    outs: Sequence[Spec],
    mask: int,
    others: tuple[tuple[str, int], ...],
    saved: dict[str, Any],
) -> None:
    """Save the inputs that the gradients of the decomposition read and the rule does not; leaves in any case."""
    for _, i in others:
        x = inputs[i]
        if hasattr(x, "ref") and (x.node is not None or not x.requires_grad):
            kept = _saved_for_decomposition(op, inputs, params, outs, mask)
            break
    else:
        kept = None
    for name, i in others:
        saved[name] = _save(inputs[i]) if kept is None else kept[i]


def may_use_decomposition(op: OpDef, outs: Sequence[Spec]) -> bool:
    """Return whether a gradient may arrive at an output that the op's rule does not name: the decomposition is used then."""
    rule = op.gradient
    if rule is None:
        return True
    if op.decompose is not None:
        for i in rule.unnamed_outputs:
            if outs[i].dtype.kind == "float":
                return True
    return False


def _save(x: Any) -> Any:
    return SavedInput(x, x.buffer.version) if hasattr(x, "ref") else x


def record(op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[Tensor, ...]) -> None:
    """Put an op on the tape, if any of its results can have a gradient."""
    if outs[0].ref.spec.dtype.kind != "float":
        return
    node = GradNode(op, inputs, params, outs)
    thread = dispatch.thread
    if (hooks := thread.executor.tape_hooks) is not None:
        hooks.add_to_tape(node)
    if thread.region is not None:
        thread.region.add(node, inputs)
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
