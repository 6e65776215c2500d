"""The base class of optimizers: parameter groups, per-parameter state, and saving both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from polyhal import functions as ops
from polyhal.autograd import enable_grad, no_grad
from polyhal.creation import zeros
from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.nn.state import StateDictError, adopt, shape_of
from polyhal.nn.utils import CHUNK
from polyhal.tensor import Tensor

_ADD = OPS["add"]
Group = dict[str, Any]
Params = Iterable[Tensor] | Iterable[Group]


class Optimizer:
    """Base of optimizers. Subclasses define `update(group, parameters)`.

    `params` are tensors, or dictionaries with "params" and settings that differ from the defaults. A step enqueues
    work and waits for nothing.
    """

    skippable = False
    """Whether `update` obeys `turn`, so that the device can decide that a step is left out."""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._skip: Tensor | None = None
        self._skipped: Tensor | None = None
        """How many steps of those that were counted the device left out; None if none could be."""
        self._begun: set[Tensor] = set()
        """The parameters whose steps were counted when that was 0."""
        given: list[Any] = list(params) if not isinstance(params, Tensor) else [params]
        if not given:
            raise ValueError(message(type(self).__name__, "got no parameters", expected="at least one"))
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: Group) -> None:
        """Train more parameters, with settings of their own. Raises ValueError for tensors that cannot be trained."""
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(
                    message(type(self).__name__, f"got a {type(p).__name__}", expected="tensors or groups of tensors")
                )
            if not p.is_leaf:
                raise ValueError(
                    message(
                        type(self).__name__, f"a tensor of shape {p.shape} is the result of an op", expected="leaves"
                    )
                )
            if id(p) in known:
                raise ValueError(message(type(self).__name__, f"a parameter of shape {p.shape} is given twice"))
            known.add(id(p))
        self.param_groups.append({**self.defaults, **group, "params": params})
        dispatch.structure.changed()

    def step(self, closure: Callable[[], Any] | None = None, *, skip: Tensor | None = None) -> Any:
        """Update every parameter that has a gradient.

        `closure`, if given, computes the loss first, which is returned. A step whose `skip`, a float32 tensor without axes,
        is not 0 changes nothing: the device sees to that. Raises ValueError where `skip` is given to an optimizer that cannot.
        """
        executor = dispatch.thread.executor
        executor.on_rollback(self._snapshot)
        self._begin(skip)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self.update(group, [p for p in group["params"] if p.grad is not None])
            executor.name_state(self.state)
        for device in {p.device: None for p in self._ordered()}:
            device.flush()
        return loss

    def _snapshot(self) -> Callable[[], None]:
        """Note which state exists. Returns the function that removes what was added since."""
        return partial(self._forget_new, {p: set(state) for p, state in self.state.items()})

    def _forget_new(self, before: Mapping[Tensor, set[str]]) -> None:
        """Have no more state than before."""
        for p, state in [*self.state.items()]:
            for name in state.keys() - before.get(p, set()):
                del state[name]
            if p not in before:
                del self.state[p]

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        """Update the parameters of one group; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no update")

    def uncount(self, steps: int) -> None:
        """Take back `steps` from every count of steps; defined by subclasses that are `skippable`."""

    def turn(self, count: Any, device: Device) -> Tensor | None:
        """The number of a step that is the `count`-th with those that were left out, 0 if it is left out too.

        Without axes, on `device`; None where the device has never had to decide, so that `count` is the number. A `count` of
        None is for steps that need no number: it is 1 for those that are taken.
        """
        if self._skipped is None or (count is None and self._skip is None):
            return None
        number: Any = 1.0 if count is None else count - self._skipped.to(device)
        if self._skip is not None:
            number = ops.where(ops.equal(self._skip.to(device), 0.0), number, 0.0)
        return number  # type: ignore[no-any-return]

    def _begin(self, skip: Tensor | None) -> None:
        self._skip = skip
        if skip is None:
            return
        if not self.skippable:
            raise ValueError(message(type(self).__name__, "cannot leave steps out", fix="call step() without skip"))
        trained = {p for p in self._ordered() if p.grad is not None}
        if not trained <= self._begun:
            self._settle()  # counts of steps that were left out begin together
            self._begun |= trained
        if self._skipped is None:
            with dispatch.executing(dispatch.EAGER):
                self._skipped = ops.full((), 0.0, device=skip.device)
        with no_grad():
            left_out = ops.not_equal(skip.to(self._skipped.device), 0.0).float()
            dispatch.apply_into(_ADD, (self._skipped, left_out), (), (self._skipped,))

    def _settle(self) -> None:
        """Bring the counts of steps up to date. Waits for the device if that had to decide."""
        if self._skipped is None:
            return
        with dispatch.executing(dispatch.EAGER):
            left_out = int(self._skipped.item())
            if left_out:
                self.uncount(left_out)
                self._skipped.zero_()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad.zero_()

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and settings in PyTorch's form: parameters are numbered in the order of the groups."""
        self._settle()
        numbers = {id(p): i for i, p in enumerate(self._ordered())}
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {numbers[id(p)]: dict(s) for p, s in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a saved state: tensors are copied to each parameter's device. Raises StateDictError."""
        groups, state = state_dict["param_groups"], state_dict["state"]
        mine, theirs = [len(g["params"]) for g in self.param_groups], [len(g["params"]) for g in groups]
        if mine != theirs:
            raise StateDictError(
                message(
                    "load_state_dict",
                    f"the saved groups have {theirs} parameters, these have {mine}",
                    expected="the same groups",
                )
            )
        saved_order = [n for g in groups for n in g["params"]]
        loaded: dict[Tensor, dict[str, Any]] = {}
        for number, p in zip(saved_order, self._ordered(), strict=True):
            entry = state.get(number, state.get(str(number)))
            if entry is not None:
                loaded[p] = {name: self._taken(name, value, p) for name, value in entry.items()}
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({k: v for k, v in saved.items() if k != "params"})
        self.state = loaded
        if self._skipped is not None:
            self._skipped.zero_()
        dispatch.structure.changed()

    def _taken(self, name: str, value: Any, p: Tensor) -> Any:
        """A saved value beside its parameter: arrays become tensors of their own, arrays of one step count numbers."""
        if name == "step":
            return int(value)
        if not hasattr(value, "shape"):
            return value
        if shape_of(value) != p.shape:
            raise StateDictError(
                message(
                    "load_state_dict", f"{name} has shape {shape_of(value)}", expected=f"{p.shape}, as its parameter"
                )
            )
        return adopt(value, state_dtype(p), p.device).clone()

    def _ordered(self) -> Iterator[Tensor]:
        return (p for g in self.param_groups for p in g["params"])

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            settings = ", ".join(f"{k}={v}" for k, v in group.items() if k != "params")
            lines.append(f"  group {i}: {len(group['params'])} parameters, {settings}")
        return "\n".join([*lines, ")"])


def fresh_state(p: Tensor) -> Tensor:
    """Zeros beside a parameter. They are made at once even in a capture, because they outlive its runs."""
    with dispatch.executing(dispatch.EAGER):
        return zeros(p.shape, state_dtype(p), p.device)


def setting(group: Group, name: str) -> Any:
    """A number of a group. It may change from step to step, also of a captured one."""
    return dispatch.runtime_scalar(lambda: float(group[name]), name)


def state_dtype(p: Tensor) -> DType:
    """The dtype of optimizer state beside a parameter: at least float32."""
    return accumulator(p.dtype)


def dense_grad(p: Tensor) -> Tensor:
    """A parameter's gradient in row-major order, off the tape."""
    assert p.grad is not None
    return ops.contiguous(p.grad.detach())


def batches(params: Sequence[Tensor], key: Callable[[Tensor], Any]) -> Iterator[tuple[Any, Sequence[Tensor]]]:
    """Parameters that one launch can update: of one device, dtype and `key`, at most as many as a launch takes."""
    found: dict[Any, list[Tensor]] = {}
    for p in params:
        found.setdefault((p.device, p.dtype, key(p)), []).append(p)
    for (_, _, value), members in found.items():
        for i in range(0, len(members), CHUNK):
            yield value, members[i : i + CHUNK]
