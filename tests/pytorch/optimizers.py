"""Replays PyTorch's database of optimizers: parameters and state after the same steps, and state dicts exchanged."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import polyhal
from polyhal import Device, Tensor, optim
from tests.pytorch.compare import difference, to_torch
from tests.pytorch.convert import NoCounterpartError, leaves, to_polyhal
from tests.pytorch.optimizer_errors import error_cases
from tests.pytorch.outcome import Outcome, describe

STEPS = 4
SENSELESS = {"SparseAdam": "there are no sparse tensors"}
_FLAGS = ("foreach", "fused", "capturable", "differentiable")
"""Arguments that choose an implementation of a step and do not change its results."""
_SCRATCH = "al"
"""State that PyTorch's L-BFGS keeps to save allocations; it recreates the state if it is absent."""
TOLERANCES = {
    "LBFGS": 64.0,  # differences of gradients that are nearly equal
    "Muon": 2 * 2.0**-8 / 1e-5,  # directions are computed in bfloat16: two units in the last place of one
}
"""Of parameters, in PyTorch's tolerances for the dtype; 8 for the others."""
# The reciprocal of y * s, of about 1e-6: gradients of about 1, rounded to 6e-8, leave 1e-3 of its value open.
STATE_TOLERANCES = {**TOLERANCES, "LBFGS": 2048.0}


@dataclass(frozen=True)
class Case:
    """One way to use an optimizer."""

    settings: Mapping[str, Any]
    flags: Mapping[str, bool] = field(default_factory=dict)
    groups: bool = False
    """True if the second parameter is in a group with a rate of its own."""
    exchange: str = ""
    """`from` or `to`: half-way a new optimizer continues from PyTorch's state dict, or PyTorch's from ours."""
    named: bool = False
    """True if parameters come with names."""

    @property
    def text(self) -> str:
        """The case in short."""
        extra = (
            "parameter groups" * self.groups,
            f"state {self.exchange} PyTorch" * bool(self.exchange),
            "names" * self.named,
        )
        return ", ".join([describe([], {**self.settings, **self.flags}), *filter(None, extra)]).strip(", ")


@functools.cache
def optimizer_database() -> tuple[Any, ...]:
    """Return all entries (`OptimizerInfo`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_optimizers import optim_db

    return tuple(optim_db)


def replay_database(
    only: str, exact: bool, dtypes: list[torch.dtype], device: Device, limit: int | None
) -> Iterator[list[Outcome]]:
    """Replay the optimizers whose name contains `only`, or is it if `exact`."""
    for entry in optimizer_database():
        if entry.name == only or (not exact and only in entry.name):
            for dtype in dtypes:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield list(replay(entry, dtype, device, limit=limit))


def replay(entry: Any, dtype: torch.dtype, device: Device, *, limit: int | None = None) -> Iterator[Outcome]:
    """Replay the cases of an optimizer, at most `limit` evenly chosen ones."""
    outcome = functools.partial(Outcome, entry.name, str(dtype).removeprefix("torch."))
    if entry.name in SENSELESS:
        yield outcome("senseless", SENSELESS[entry.name])
        return
    if not hasattr(optim, entry.name):
        yield outcome("missing")
        return
    drawn = list(cases(entry))
    step = 1 if limit is None else max(1, len(drawn) // limit)
    for case in drawn[::step]:
        try:
            problem = Replay(entry, case, dtype, device).difference()
            yield outcome("differs" if problem else "agrees", problem, case.text)
        except NoCounterpartError as error:
            yield outcome("senseless", str(error), case.text)
        except Exception as error:
            yield outcome("raises", f"{type(error).__name__}: {error}", case.text)
    if limit is None:
        yield from error_cases(entry, getattr(optim, entry.name), device, outcome)


def cases(entry: Any) -> Iterator[Case]:
    settings = [dict(i.kwargs) for i in entry.optim_inputs_func(device="cpu")]
    flags: list[dict[str, bool]] = [{name: True} for name in _FLAGS if has_flag(entry, name)]
    if "foreach" in entry.supported_impls:
        flags.append({"foreach": False})
    for keywords in settings:
        yield Case(keywords)
        yield from (Case(keywords, chosen) for chosen in flags)
        yield from (Case(keywords, exchange=direction) for direction in ("from", "to"))
        if entry.supports_param_groups:
            yield Case(keywords, groups=True)
            yield Case(keywords, groups=True, exchange="from")
    yield Case({"lr": torch.tensor(0.01)})
    yield Case({"lr": 0.01}, named=True)


def has_flag(entry: Any, name: str) -> bool:
    return bool(name in entry.supported_impls or (name == "capturable" and entry.has_capturable_arg))


def shapes_of(name: str) -> list[tuple[int, ...]]:
    return [(3, 4), (4, 2)] if name == "Muon" else [(3, 4), (5,)]


class Replay:
    """Equal steps here and in PyTorch, from equal parameters and gradients."""

    def __init__(self, entry: Any, case: Case, dtype: torch.dtype, device: Device) -> None:
        self._entry, self._case, self._device = entry, case, device
        torch.manual_seed(0)
        shapes = shapes_of(entry.name)
        self._theirs = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
        self._ours: list[Tensor] = to_polyhal(self._theirs, device)
        self._gradients = [[torch.randn(shape).to(dtype) for shape in shapes] for _ in range(STEPS)]
        self._settings = dict(case.settings)
        if entry.step_requires_closure:
            self._settings["max_iter"] = 3  # both would find the minimum, whatever the way

    def difference(self) -> str:
        """Describe differences after the steps. Raises NoCounterpartError for a flag that is refused with a reason."""
        theirs, ours = self._their_optimizer(self._theirs), self._our_optimizer()
        half = STEPS // 2 if self._case.exchange else STEPS
        self._run(ours, theirs, 0, half)
        problem = self._compared(ours, theirs)
        if self._case.exchange == "from" and not problem:
            ours, state = self._our_optimizer(), theirs.state_dict()
            ours.load_state_dict(to_polyhal(state, self._device))
        elif self._case.exchange == "to" and not problem:
            theirs, state = self._their_optimizer(self._theirs), _in_torch(ours.state_dict())
            theirs.load_state_dict(state)
        self._run(ours, theirs, half, STEPS)
        return problem or self._compared(ours, theirs)

    def _run(self, ours: Any, theirs: Any, begin: int, end: int) -> None:
        for step in range(begin, end):
            if self._entry.step_requires_closure:
                theirs.step(closure(theirs, self._theirs, self._gradients[0]))
                targets = to_polyhal(self._gradients[0], self._device)
                ours.step(closure(ours, self._ours, targets))
                continue
            for number, (p, mine) in enumerate(zip(self._theirs, self._ours, strict=True)):
                skipped = step == 1 and number == 1  # a parameter without a gradient misses the step
                p.grad = None if skipped else self._gradients[step][number].clone()
                mine.grad = None if skipped else to_polyhal(self._gradients[step][number], self._device)
            theirs.step()
            ours.step()

    def _groups(self, params: list[Any]) -> list[Any]:
        named = [(f"p{i}", p) for i, p in enumerate(params)] if self._case.named else params
        return [{"params": named[:1]}, {"params": named[1:], "lr": 0.05}] if self._case.groups else named

    def _their_optimizer(self, params: list[torch.Tensor]) -> Any:
        # Flags change nothing but speed; some of them are only for GPUs.
        return self._entry.optim_cls(self._groups(params), **self._settings)

    def _our_optimizer(self) -> Any:
        keywords = to_polyhal(self._settings, self._device)
        try:
            return getattr(optim, self._entry.name)(self._groups(self._ours), **keywords, **self._case.flags)
        except ValueError as error:
            refused = [flag for flag in self._case.flags if flag in str(error)]
            if refused:
                raise NoCounterpartError(f"{refused[0]} is refused: {error}") from error
            raise

    def _compared(self, ours: Any, theirs: Any) -> str:
        tolerance = TOLERANCES.get(self._entry.name, 8.0)
        problem = difference(self._ours, self._theirs, tolerance=tolerance)
        if problem:
            return f"parameters: {problem}"
        tolerance = STATE_TOLERANCES.get(self._entry.name, 8.0)
        return state_difference(ours.state_dict(), theirs.state_dict(), tolerance)


def closure(optimizer: Any, params: list[Any], targets: list[Any]) -> Callable[[], Any]:
    """Return the loss of an uneven bowl with quartic walls."""

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2 * (1 + t**2)).sum() + (p**4).sum() * 0.1 for p, t in zip(params, targets, strict=True))
        loss.backward()
        return loss

    return closure


def state_difference(ours: dict[str, Any], theirs: dict[str, Any], tolerance: float) -> str:
    """Describe differences between state dicts: names and values of state, and settings of groups."""
    for number, state in theirs["state"].items():
        expected = {k: v for k, v in state.items() if v is not None and k != _SCRATCH}
        own = {k: v for k, v in ours["state"].get(number, {}).items() if v is not None and k != _SCRATCH}
        if set(own) != set(expected):
            return f"state {sorted(own)}, expected {sorted(expected)}"
        for name, value in expected.items():
            problem = _value_difference(own[name], value, tolerance)
            if problem:
                return f"state {name} of parameter {number}: {problem}"
    for own, expected in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        for name in expected.keys() - {*_FLAGS}:
            if name not in own or _value_difference(own[name], expected[name], tolerance):
                return f"group's {name}: {own.get(name)}, expected {expected[name]}"
    return ""


def _value_difference(ours: Any, theirs: Any, tolerance: float) -> str:
    if isinstance(theirs, (list, tuple)):
        if len(list(leaves(ours))) != len(list(leaves(theirs))):
            return f"{len(list(leaves(ours)))} elements, expected {len(list(leaves(theirs)))}"
        pairs = zip(leaves(ours), leaves(theirs), strict=True)
        return next(filter(None, (_value_difference(a, b, tolerance) for a, b in pairs)), "")
    if isinstance(ours, (Tensor, torch.Tensor)) and isinstance(theirs, torch.Tensor):
        return difference(ours, theirs, tolerance=tolerance)
    ours, theirs = (v.item() if isinstance(v, (Tensor, torch.Tensor)) else v for v in (ours, theirs))
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (ours, theirs))
    same = math.isclose(ours, theirs, rel_tol=1e-6 * tolerance) if numbers else ours == theirs
    return "" if same else f"{ours!r}, expected {theirs!r}"


def _in_torch(value: Any) -> Any:
    """Return a state dict with PyTorch's tensors."""
    if isinstance(value, dict):
        return {k: _in_torch(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_in_torch(v) for v in value)
    if isinstance(value, polyhal.Tensor):
        return to_torch(value)
    return value
