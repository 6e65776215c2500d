"""Values and facts that differ from PyTorch's on purpose: each rule looks at all wrong elements. `known.py` has the reasons."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.reliability.programs import rerun
from benchmarks.reliability.programs.difference import Difference, Extra, OneError, WrongFact, WrongValue
from benchmarks.reliability.programs.judge import UNITS
from benchmarks.reliability.programs.libraries import Double, Polyhal, PyTorch
from benchmarks.reliability.programs.program import Program, Statement
from benchmarks.reliability.programs.trace import Step, trace
from polyhal import Device

_ZERO_MAKERS = r"softshrink\(|_norm\(|Norm\w*\(|scatter_add\(|scatter_reduce\(|index_add_?\(|\brelu_?\("
_CHOOSERS = r"\b(aminmax|amax|amin|max|min|maximum|minimum)\("
"""Calls that choose one of two equal numbers: PyTorch takes the first along an axis, and any other of all elements."""
_SIGN_SHOWERS = r"(copysign|atan2|angle|reciprocal)_?\("
_CANCELLING = r"linalg\.(cross|inv|solve)\(|logaddexp2?\(|lgamma\(|kl_div\(|_norm\(|Norm\w*\(|\.(sum|mean)\(\)"
_ZERO_COUNTERS = r"argwhere|nonzero|unique|\.all\(|\.any\(|logical_\w+\(|\b(eq|ne)\(|\.to\(torch\.bool\)"
_SELECTORS = r"argwhere|nonzero\(|unique"
_DIVIDERS = r"remainder|fmod|floor_divide"
_PRODUCTS = r" @ |matmul\(|\b(dot|mv|mm|bmm)\("
_NEAR = 4.0
"""Units in the last place by which two results of one number may differ."""
_OUTSIDE = re.compile(r"^(?:\[getitem\] )?index (-?\d+) is out of \w+ for \w+ 0 (?:of length|with size) (\d+)$")
_INEXACT = ((r"special\.bessel_", 1e-6, False), (r"airy_ai\(", 5e-6, False), (r"digamma|hardsigmoid", 1e-6, True))
"""Calls, PyTorch's errors of them in double precision, and whether only its derivatives have them."""
_PARTED = 24
"""Runs with zeros that are a little off."""
_ATTENTION = re.compile(r"scaled_dot_product_attention\((\w+), (\w+), (\w+)")
_NORMALIZING = r"_norm\(|Norm\w*\(|normalize\("
_SPREAD = 8.0
"""How much larger the error of one gradient may be than the largest one of the runs: its op rounds several times."""
_OFF = 1e-9
_STATISTICS = re.compile(r"^m\d+\..*(running_mean|running_var|num_batches_tracked)$")


def edge_of_padding(program: Program, difference: Difference) -> bool:
    """A gradient of padding that requires a gradient only in PyTorch: second derivatives are zeros there."""
    if not isinstance(difference, WrongFact) or (difference.fact, difference.ours) != ("requires_grad", False):
        return False
    steps = trace(program, difference.call).behind(difference.name)
    padded = any(s.calls(r"F\.pad\(.*mode='(reflect|replicate)'") for s in steps)
    return padded and any(s.calls("create_graph=True") for s in steps)


def sign_of_zero(program: Program, difference: Difference) -> bool:
    """Opposite numbers where an op made, or chose one of several zeros, and another one shows its sign, or the sign of NaN."""
    if not isinstance(difference, WrongValue) or not _opposite(difference.ours, difference.theirs).all():
        return False
    steps = trace(program, difference.call).behind(difference.name)
    if any(s.calls(r"copysign_?\(") and any(np.isnan(x).any() for x in s.before.values()) for s in steps):
        return True
    if any(_has_zeros_of_both_signs(chooser) for chooser, _ in _pairs(program, difference, _CHOOSERS, _SIGN_SHOWERS)):
        return True
    return any(_has_zero(maker) for maker, _ in _pairs(program, difference, _ZERO_MAKERS, _SIGN_SHOWERS))


def hook_of_a_view(program: Program, difference: Difference) -> bool:
    """A value that depends on a hook of a view whose memory was written to without gradients, where PyTorch drops the hook."""
    if not isinstance(difference, WrongValue):
        return False
    steps = trace(program, difference.call).steps
    behind = trace(program, difference.call).behind(difference.name)
    detached = {n for s in steps if s.calls(r"\.detach\(\)") for n in s.after.keys() - s.before.keys()}
    written = [s for s in steps if s.calls(r"torch\.no_grad\(\).*\n.*_\(") or _is_write_to(s, detached)]
    hooks = [s for s in behind if s.calls(r"^v\d+\.register_hook\(")]
    return any(
        s.places & hook.places and _is_same_without(program, hook.position, s.position, difference)
        for hook in hooks
        for s in written
    )


def one_of_several_zeros(program: Program, difference: Difference) -> bool:
    """A gradient of one of several zeros that are equally large: errors of the probes, which are relative, part no zeros."""
    if not isinstance(difference, WrongValue) or not difference.is_gradient:
        return False
    steps = trace(program, difference.call).behind(difference.name)
    chosen = any(s.calls(r"topk\(|kthvalue\(|median\(") and _has_zero(s) for s in steps)
    return chosen and _is_of_parted_zeros(program, difference)


def joint_of_prelu(program: Program, difference: Difference) -> bool:
    """A second derivative of `prelu`, which PyTorch takes from the other side at 0 than the first one."""
    if not isinstance(difference, WrongValue) or not difference.is_gradient:
        return False
    steps = trace(program, difference.call).behind(difference.name)
    is_second = any(s.calls("create_graph=True") for s in steps)
    at_zero = any(s.calls(r"PReLU\(|prelu\(") and _has_zero(s) for s in steps)
    return is_second and at_zero and _is_of_parted_zeros(program, difference)


def less_exact(program: Program, difference: Difference) -> bool:
    """A value in double precision of a function that PyTorch computes less exactly."""
    if not isinstance(difference, WrongValue) or difference.dtype != "float64":
        return False
    steps = trace(program, difference.call).behind(difference.name)
    with np.errstate(all="ignore"):
        off = np.abs(difference.ours - difference.theirs) / np.maximum(1.0, np.abs(difference.theirs))
    return any(
        bool((off < error).all()) and any(s.calls(calls) for s in steps)
        for calls, error, gradients_alone in _INEXACT
        if difference.is_gradient or not gradients_alone
    )


def rounding_decides(program: Program, difference: Difference) -> bool:
    """A sum that cancels is 0 in only one library, and an op looks at it: one that counts zeros, or divides by it."""
    if _unique_of_near(program, difference):
        return True
    if isinstance(difference, WrongValue):
        looks = _DIVIDERS if difference.dtype in UNITS else f"{_ZERO_COUNTERS}|{_DIVIDERS}"
        if difference.dtype in UNITS and not (np.isfinite(difference.ours) & np.isfinite(difference.theirs)).any():
            looks = f"{looks}|{_PRODUCTS}"  # of an infinity and a zero, or a number that is almost 0
    elif isinstance(difference, OneError):
        looks = _SELECTORS if difference.error.type == "ShapeError" else ""
    else:
        looks = rf"{_SELECTORS}|{_ZERO_COUNTERS}" if _is_shape(difference) else ""
    pairs = _pairs(program, difference, _CANCELLING, looks) if looks else ()
    return any(_cancels(c) and (not user.calls(_PRODUCTS) or _has_infinity(user)) for c, user in pairs)


def _unique_of_near(program: Program, difference: Difference) -> bool:
    """Return whether `unique` is one of numbers that rounding separates or makes equal, so that it has another length."""
    if isinstance(difference, WrongFact) and difference.fact == "shape":
        steps = trace(program, difference.call).behind(difference.name)
        lengths = [_lengths_of_unique(s) for s in steps if s.calls(r"torch\.unique\(")]
        return any(math.prod(difference.ours) in found and len(found) > 1 for found in lengths)
    if isinstance(difference, OneError):
        steps = trace(program, difference.call).behind_statement(difference.position)
        lengths = [_lengths_of_unique(s) for s in steps if s.calls(r"torch\.unique\(")]
        return any(_fails_at_a_length(difference, found) for found in lengths if len(found) > 1)
    return False


def _fails_at_a_length(difference: OneError, lengths: range) -> bool:
    """Return whether one library raises an error because its tensor has another one of `lengths`."""
    outside = _OUTSIDE.search(difference.error.message)
    if outside is None:
        return difference.is_ours and "not broadcast" in difference.error.message
    index, length = map(int, outside.groups())
    return length in lengths and max(index + 1, -index) in lengths


def _lengths_of_unique(step: Step) -> range:
    """Return the lengths that `unique` may have if numbers with a distance of some units are equal or not."""
    values = np.sort(np.concatenate([a.ravel() for a in step.before.values() if a.dtype.kind == "f"] or [np.zeros(0)]))
    with np.errstate(all="ignore"):
        apart = int((~(np.diff(values) <= _NEAR * UNITS["float32"] * np.abs(values[1:]))).sum()) + 1
    return range(apart, values.size + 1)


def _is_shape(difference: Difference) -> bool:
    return isinstance(difference, WrongFact) and difference.fact == "shape"


def windows_overlap(program: Program, difference: Difference) -> bool:
    """A value after `select_scatter` and its like of windows that overlap in memory, where PyTorch's writes reach several."""
    if not isinstance(difference, WrongValue):
        return False
    steps = trace(program, difference.call).behind(difference.name)
    return any(s.calls(r"(select|slice|diagonal)_scatter\(") and any(map(s.overlaps, s.before)) for s in steps)


def differences_of_nothing(program: Program, difference: Difference) -> bool:
    """A gradient that an empty tensor requires only in PyTorch: `diff` of an axis of length 0 returned it, as it was."""
    if not isinstance(difference, WrongFact) or (difference.fact, difference.ours) != ("requires_grad", False):
        return False
    return difference.name in trace(program, difference.call).differences_of_nothing()


def linear_layer_of_a_device(program: Program, difference: Difference) -> bool:
    """A gradient that requires a gradient only on PyTorch's device, and not in Polyhal: of the weight of a linear layer."""
    if not isinstance(difference, WrongFact) or (difference.fact, difference.ours) != ("requires_grad", True):
        return False
    steps = trace(program, difference.call).behind(difference.name)
    if not any(s.calls("create_graph=True") for s in steps) or not any(s.calls(r"[lL]inear\(") for s in steps):
        return False
    seen = rerun.value(program, Polyhal(Device("numpy")), difference)
    return seen is not None and not seen.requires_grad


def cancelled_gradients(program: Program, difference: Difference) -> bool:
    """A gradient within the spread of runs in which the gradients that arrive at statements are off by some units."""
    if not isinstance(difference, WrongValue) or difference.dtype not in UNITS or not difference.is_gradient:
        return False
    run = trace(program, difference.call)
    # Adding a derivative of 0 changes no gradient: the trace does not see that it depends on the product.
    if not any(s.calls(_NORMALIZING) for s in run.behind(difference.name)) and not any(
        map(_is_cross_with_itself, run.steps)
    ):
        return False
    units = enumerate([0.0] + [UNITS[difference.dtype]] * _PARTED)
    found = (rerun.elements(program, _NudgedGradients(unit, seed), difference) for seed, unit in units)
    runs = [x for x in found if x is not None]
    spread = np.abs(np.array(runs) - runs[0]).max(0) if runs else 0.0
    return bool((np.abs(difference.ours - difference.theirs) <= _SPREAD * spread).all())


def attention_to_one_key(program: Program, difference: Difference) -> bool:
    """A gradient that is 0 in PyTorch, of a query or of the only key of attention, within the rounding of its terms."""
    if not isinstance(difference, WrongValue) or difference.dtype not in UNITS or np.any(difference.theirs):
        return False
    run = trace(program, difference.call)
    for step in run.behind(difference.name) or run.steps:  # the trace ends before a backward pass that PyTorch refuses
        found = _ATTENTION.search(step.text)
        query, key, value = (step.before.get(name) for name in found.groups()) if found else (None, None, None)
        if query is not None and key is not None and value is not None and key.shape[-2] == 1:
            sizes = (max(float(np.abs(x).max(initial=0.0)), 1.0) for x in (query, key, value))
            terms = math.prod(sizes) * value.shape[-1]
            if (np.abs(difference.ours) <= 8 * UNITS[difference.dtype] * terms).all():
                return True
    return False


def recomputed_statistics(program: Program, difference: Difference) -> bool:
    """Running statistics of a captured function that counted a forward pass in a checkpoint once, not twice."""
    if not isinstance(difference, WrongValue) or not difference.call or not _STATISTICS.search(difference.name):
        return False
    expected = rerun.elements(program, _OnceRecomputed(), difference)
    if expected is None:
        return False
    return bool((np.abs(expected - difference.ours) <= 1e-5 * np.maximum(np.abs(expected), 1.0)).all())


def zero_for_none(program: Program, difference: Difference) -> bool:
    """A gradient of zeros after a captured forward pass, where PyTorch has none."""
    return (
        isinstance(difference, Extra)
        and difference.in_function
        and difference.is_gradient
        and not difference.ours.array.any()
    )


def _pairs(program: Program, difference: Difference, first: str, second: str) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of calls behind a tensor, in which the second one depends on the first."""
    run = trace(program, difference.call)
    at = difference.position if isinstance(difference, OneError) else None
    behind = run.behind(difference.name) if at is None else [s for s in run.behind_statement(at) if s.position != at]
    makers = {n: s for n, s in enumerate(run.steps) if s in behind and s.calls(first)}
    for user in behind:
        if user.calls(second):
            yield from ((makers[n], user) for n in sorted(makers.keys() & user.behind))


def _has_zero(step: Step) -> bool:
    """Return whether a zero is among a statement's operands and results."""
    return any((a == 0).any() for a in step.arrays())


def _has_zeros_of_both_signs(step: Step) -> bool:
    """Return whether 0.0 and -0.0 are among a statement's operands."""
    signs = [np.signbit(a[a == 0]) for a in step.before.values() if a.dtype.kind == "f"]
    return any(s.any() for s in signs) and any((~s).any() for s in signs)


def _has_infinity(step: Step) -> bool:
    return any(np.isinf(a).any() for a in step.before.values() if a.dtype.kind == "f")


def _cancels(step: Step) -> bool:
    """Return whether a result is as near to 0 as the errors of its operands, which are not all 0."""
    if not any(a.any() for a in step.before.values()):
        return False
    scale = max((float(np.abs(a[np.isfinite(a)]).max(initial=1.0)) for a in step.before.values()), default=1.0) ** 2
    results = (a for n, a in step.after.items() if n not in step.before and a.dtype.kind == "f")
    return any((np.abs(a) <= 64 * UNITS["float32"] * scale).any() for a in results)


def _is_cross_with_itself(step: Step) -> bool:
    """Return whether a statement is the cross product of equal vectors, which is 0, with derivative 0."""
    first, *others = step.before.values() or (np.zeros(0),)
    return step.calls(r"linalg\.cross\(") and all(np.array_equal(first, x) for x in others)


def _is_write_to(step: Step, names: set[str]) -> bool:
    """Return whether a statement writes to a named tensor."""
    found = re.match(r"(v\d+)(\[[^=]*)?( [-+*/]?= |\.\w+_\()", step.text)
    return bool(found) and found[1] in names and (bool(found[2]) or found[3] != " = ")


def _opposite(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Mark numbers of opposite signs, and the angles 0 and pi."""
    if a.dtype.kind != "f":
        return np.zeros(a.shape, bool)
    large, small = np.maximum(np.abs(a), np.abs(b)), np.minimum(np.abs(a), np.abs(b))
    with np.errstate(all="ignore"):
        return (np.abs(large - math.pi) < 1e-2) & (small == 0) | (a == -b) | (np.abs(a + b) <= 1e-5 * np.abs(b))


def _is_same_without(program: Program, hook: int, write: int, difference: WrongValue) -> bool:
    """Return whether PyTorch computes the same value if a hook is removed after a write, or never registered after it."""
    texts = {hook: f"handle = {program.body[hook].text}", write: f"{program.body[write].text}\nhandle.remove()"}
    body = [replace(s, text=texts.get(n, s.text)) for n, s in enumerate(program.body)]
    if write < hook:
        body = [s for n, s in enumerate(program.body) if n != hook]
    others = (*program.setup, *body)
    programs = (program, replace(program, statements=others))
    a, b = (rerun.value(p, PyTorch(), difference) for p in programs)
    return a is not None and b is not None and np.array_equal(a.array, b.array, equal_nan=True)


def _is_of_parted_zeros(program: Program, difference: WrongValue) -> bool:
    """Return whether each wrong element is PyTorch's in a run in which zeros are a little off, each by another amount."""
    found = np.zeros(len(difference.ours), bool)
    for seed in range(_PARTED):
        theirs = rerun.elements(program, _PartedZeros(seed), difference)
        if theirs is not None:
            found |= np.abs(theirs - difference.ours) <= 1e-3 * np.maximum(np.abs(theirs), 1.0)
    return bool(found.all())


class _OnceRecomputed(Double):
    """PyTorch in double precision, where checkpoints compute nothing again from the second call on."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def begin(self, variables: dict[str, Any]) -> None:
        """Count a call."""
        self._calls += 1

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Replace the function of checkpoints inside the block."""
        import torch.utils.checkpoint as module

        before = module.checkpoint

        def checkpoint(function: Callable[..., object], *args: object, **settings: object) -> object:
            return before(function, *args, **settings) if self._calls == 1 else function(*args)

        module.checkpoint = checkpoint
        try:
            with super().running():
                yield
        finally:
            module.checkpoint = before


class _NudgedGradients(Double):
    """PyTorch in double precision, where each gradient that arrives at a result is off by some units in the last place."""

    def __init__(self, unit: float, seed: int) -> None:
        super().__init__(0.0, seed)
        self._error = unit

    def after(self, statement: Statement, variables: dict[str, Any]) -> None:
        """Add hooks to the results of a statement."""
        super().after(statement, variables)
        for tensor in (variables.get(name) for name in statement.targets):
            if self.is_tensor(tensor) and tensor.requires_grad and not tensor.is_leaf and tensor.numel():
                tensor.register_hook(self._nudged)

    def _nudged(self, g: Any) -> Any:
        import torch

        return g * (1 + self._error * (2 * torch.rand(g.shape, generator=self.random, dtype=torch.float64) - 1))


class _PartedZeros(Double):
    """PyTorch in double precision, with zeros that are a little off after each statement."""

    def __init__(self, seed: int) -> None:
        super().__init__(_OFF, seed)

    def nudge(self, tensor: object, scale: float = 0.0) -> None:
        """Change zeros by random amounts, without a trace on the tape."""
        import torch

        assert isinstance(tensor, torch.Tensor)
        t = tensor.data
        if t.is_floating_point() and t.numel() and 0 not in t.stride():
            noise = 2 * torch.rand(t.shape, generator=self.random, dtype=torch.float64) - 1
            t.add_(self.unit * noise * (t == 0))
