"""The base class of optimizers: parameter groups, state per parameter, and saving both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from polyhal import functions as ops
from polyhal.creation import zeros
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.ops import OPS
from polyhal.nn.parameter import is_uninitialized
from polyhal.nn.state import StateDictError, adopt, shape_of
from polyhal.nn.utils import CHUNK
from polyhal.tape.modes import enable_grad, no_grad
from polyhal.tensor import Tensor
from polyhal.tensor.complex_tensor import join, real_parts, real_parts_of

if TYPE_CHECKING:
    import torch

_ADD = OPS["add"]
_INTERRUPTED = (
    "The step of the optimizer was interrupted. If it updates parameters by several launches (more than fit into one, several "
    "groups, devices or dtypes), some are updated and others are not: load the last checkpoint. Else it can be repeated."
)
Group = dict[str, Any]
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Group]


class Optimizer:
    """Base of optimizers. Subclasses define `update(group, parameters)`.

    `params` are tensors, pairs of name and tensor (`model.named_parameters()`), or dictionaries with "params" and settings
    that differ from the defaults. A step does not wait for the device. Raises TypeError for a single tensor.
    """

    skippable = False
    """True if `update` uses `device_step`, so that the device can decide to skip a step."""

    host_state: ClassVar[tuple[str, ...]] = ()
    """State, in addition to "step", that is a Python number here and a tensor in PyTorch's state dicts."""

    factored_state: ClassVar[tuple[str, ...]] = ()
    """State in another shape than its parameter's."""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        """State per parameter; per part for a complex one."""
        self._skip: Tensor | None = None
        self._skipped: Tensor | None = None
        """How many counted steps the device skipped, on the device; None if no step could be skipped yet."""
        self._counted: set[Tensor] = set()
        """The parameters whose steps `_skipped` applies to."""
        if isinstance(params, (Tensor, Mapping)):
            problem = f"params is a {type(params).__name__}"
            raise TypeError(message(type(self).__name__, problem, expected="several tensors, named tensors or groups"))
        items: list[Any] = list(params)
        if not items:
            raise ValueError(message(type(self).__name__, "got no parameters", expected="at least one"))
        groups = items if isinstance(items[0], dict) else [{"params": items}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: Group) -> None:
        """Add parameters with settings of their own. Raises ValueError for tensors that cannot be trained."""
        params = group["params"]
        params, names = self._without_names([params] if isinstance(params, Tensor) else list(params))
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(
                    message(type(self).__name__, f"got a {type(p).__name__}", expected="tensors or groups of tensors")
                )
            if is_uninitialized(p):
                problem = "a parameter of a lazy layer has no shape yet"
                fix = "call the model once before you make its optimizer"
                raise ValueError(message(type(self).__name__, problem, fix=fix))
            if not p.is_leaf:
                raise ValueError(
                    message(
                        type(self).__name__, f"a tensor of shape {p.shape} is the result of an op", expected="leaves"
                    )
                )
            if id(p) in known:
                raise ValueError(message(type(self).__name__, f"a parameter of shape {p.shape} is given twice"))
            known.add(id(p))
        if any(("param_names" in g) is not bool(names) for g in self.param_groups):
            problem = "some parameter groups have names and others do not"
            raise ValueError(message(type(self).__name__, problem, expected="all or none"))
        self.param_groups.append({**self.defaults, **group, "params": params, **names})
        dispatch.structure.changed()

    def _without_names(self, params: list[Any]) -> tuple[list[Any], dict[str, list[str]]]:
        """Split pairs of name and tensor; the second result is empty without names, as in PyTorch's groups."""
        pairs = [p for p in params if isinstance(p, tuple)]
        if not pairs:
            return params, {}
        if len(pairs) < len(params):
            raise ValueError(message(type(self).__name__, "some parameters have names", expected="all or none"))
        return [p for _, p in pairs], {"param_names": [name for name, _ in pairs]}

    def step(self, closure: Callable[[], Any] | None = None, *, skip: Tensor | None = None) -> Any:
        """Update every parameter that has a gradient.

        `closure` computes the loss first, which is returned. `skip`, a float32 scalar tensor, lets the device decide: if it is
        not 0, the step changes nothing. Raises ValueError for `skip` if the optimizer is not `skippable`.
        """
        recorder = dispatch.thread.executor.recorder
        if recorder is not None:
            recorder.on_rollback(self._snapshot)
        self._begin(skip)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            try:
                for group in self.param_groups:
                    self.update(group, [p for p in real_parts_of(group["params"]) if p.grad is not None])
            except PolyhalError as error:
                error.add_note(_INTERRUPTED)
                raise
            if recorder is not None:
                recorder.name_state(self.state)
        for device in {p.device: None for p in self._ordered()}:
            device.flush()
        return loss

    def _snapshot(self) -> Callable[[], None]:
        """Note which state exists. Returns a function that removes state added since."""
        return partial(self._remove_new_state, {p: set(state) for p, state in self.state.items()})

    def _remove_new_state(self, before: Mapping[Tensor, set[str]]) -> None:
        for p, state in [*self.state.items()]:
            for name in state.keys() - before.get(p, set()):
                del state[name]
            if p not in before:
                del self.state[p]

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        """Update the parameters of one group; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no update")

    def subtract_steps(self, steps: int) -> None:
        """Subtract `steps` from every step count; defined by subclasses that are `skippable`."""

    def device_step(self, count: Any, device: Device) -> Tensor | None:
        """Return the number of this step without skipped ones, 0 if it is skipped itself: a scalar tensor on `device`.

        `count` is its number with skipped steps; None returns 1 for a step that is not skipped. Returns None if the device
        never had to decide, so that `count` is the number.
        """
        if self._skipped is None or (count is None and self._skip is None):
            return None
        number: Any = 1.0 if count is None else count - self._skipped.to(device)
        if self._skip is None:
            counted: Tensor = number
            return counted
        return ops.where(ops.equal(self._skip.to(device), 0.0), number, 0.0)

    def _begin(self, skip: Tensor | None) -> None:
        self._skip = skip
        if skip is None:
            return
        if not self.skippable:
            raise ValueError(message(type(self).__name__, "cannot leave steps out", fix="call step() without skip"))
        trained = {p for p in real_parts_of(list(self._ordered())) if p.grad is not None}
        if not trained <= self._counted:
            self._apply_skipped()  # all parameters start to count skipped steps from 0
            self._counted |= trained
        if self._skipped is None:
            with dispatch.executing(dispatch.EAGER):
                self._skipped = ops.full((), 0.0, device=skip.device)
        with no_grad():
            skipped = ops.not_equal(skip.to(self._skipped.device), 0.0).float()
            dispatch.apply_into(_ADD, (self._skipped, skipped), (), (self._skipped,))

    def _apply_skipped(self) -> None:
        """Subtract skipped steps from step counts. Waits for the device if it had to decide."""
        if self._skipped is None:
            return
        with dispatch.executing(dispatch.EAGER):
            skipped = int(self._skipped.item())
            if skipped:
                self.subtract_steps(skipped)
                self._skipped.zero_()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set all gradients to None, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad.zero_()

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return state and settings in PyTorch's form: parameters are numbered in the order of the groups."""
        self._apply_skipped()
        numbers = {id(p): i for i, p in enumerate(self._ordered())}
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {numbers[id(p)]: self._state_of(p) for p in self._ordered() if real_parts(p)[0] in self.state}
        return {"state": state, "param_groups": groups}

    def _state_of(self, p: Tensor) -> dict[str, Any]:
        """Return the state of a parameter: complex tensors for a complex one."""
        states = [self.state[part] for part in real_parts(p)]
        if len(states) == 1:
            return dict(states[0])
        return {k: join(v, states[1][k]) if isinstance(v, Tensor) else v for k, v in states[0].items()}

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
        loaded: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, p in zip(saved_order, self._ordered(), strict=True):
            entry = state.get(number, state.get(str(number)))
            for i, part in enumerate(() if entry is None else real_parts(p)):
                values = {k: part_of(v, i) if part is not p else v for k, v in entry.items()}
                loaded[part] = {name: self._loaded(name, value, part) for name, value in values.items()}
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({k: v for k, v in saved.items() if k not in ("params", "param_names")})
        self.state = loaded
        self._skipped = None
        dispatch.structure.changed()

    def _loaded(self, name: str, value: Tensor | int, p: Tensor) -> Any:
        """Return a saved value for a parameter: arrays become tensors on its device, step counts Python numbers."""
        if name == "step":
            return int(value)
        if name in self.host_state:
            return float(value)
        if not hasattr(value, "shape"):
            return value
        if name in self.factored_state:
            return adopt(value, state_dtype(p), p.device).clone()
        if shape_of(value) != p.shape:
            raise StateDictError(
                message(
                    "load_state_dict", f"{name} has shape {shape_of(value)}", expected=f"{p.shape}, as its parameter"
                )
            )
        return adopt(value, state_dtype(p), p.device).clone()

    def _ordered(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"]]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            settings = ", ".join(f"{k}={v}" for k, v in group.items() if k != "params")
            lines.append(f"  group {i}: {len(group['params'])} parameters, {settings}")
        return "\n".join([*lines, ")"])


def part_of(value: torch.Tensor, i: int) -> Any:
    """Return the real (0) or imaginary (1) part of complex state, and any other value unchanged."""
    if "complex" not in str(getattr(value, "dtype", "")):  # a dtype of Polyhal, NumPy or PyTorch
        return value
    return value.imag if i else value.real


def zero_state(p: Tensor) -> Tensor:
    """Return zeros in the shape and on the device of a parameter, made eagerly even in a captured step, which they outlive."""
    with dispatch.executing(dispatch.EAGER):
        return zeros(p.shape, state_dtype(p), p.device)


def setting(group: Group, name: str) -> Any:
    """Return a setting of a group as a runtime scalar: it may change from step to step, also in a captured one.

    `name[i]` is an element of a pair, such as `betas[0]`.
    """
    key, _, index = name.rstrip("]").partition("[")
    value = (lambda: float(group[key][int(index)])) if index else (lambda: float(group[key]))
    return dispatch.runtime_scalar(value, f"{key.removesuffix('s')}{int(index) + 1}" if index else name)


def count_step(states: Sequence[dict[str, Any]]) -> None:
    """Add one to the step counts of parameters, now and at each replay of a captured step that does not fail."""
    dispatch.on_replay(partial(_add_steps, states, 1), partial(_add_steps, states, -1))


def _add_steps(states: Sequence[dict[str, Any]], steps: int) -> None:
    for state in states:
        state["step"] += steps


def state_dtype(p: Tensor) -> DType:
    """Return the dtype of optimizer state for a parameter: at least float32."""
    return accumulator(p.dtype)


def dense_grad(p: Tensor) -> Tensor:
    """Return a parameter's gradient in row-major order, off the tape. Raises ValueError if it has none."""
    grad = p.grad
    if grad is None:
        raise ValueError(message("optimizer", f"a parameter of shape {p.shape} has no gradient"))
    return ops.contiguous(grad.detach())


def batches(params: Sequence[Tensor], key: Callable[[Tensor], Any]) -> Iterator[tuple[Any, Sequence[Tensor]]]:
    """Group parameters for one launch each: of one device, dtype and `key`, at most as many as a launch takes."""
    groups: dict[Any, list[Tensor]] = {}
    for p in params:
        groups.setdefault((p.device, p.dtype, key(p)), []).append(p)
    for (_, _, value), members in groups.items():
        for i in range(0, len(members), CHUNK):
            yield value, members[i : i + CHUNK]
