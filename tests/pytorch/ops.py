"""Replay PyTorch's sample calls on a device: compare results, dtypes and gradients."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import polyhal
from polyhal import Device, Tensor
from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.nn import functional
from tests.pytorch.compare import difference, in_double, is_no_farther
from tests.pytorch.convert import NoCounterpartError, leaves, to_polyhal
from tests.pytorch.database import caller, drops_elements, entries, full_name, is_random, samples
from tests.pytorch.gradients import gradient_difference, polyhal_gradients, torch_gradients
from tests.pytorch.outcome import Outcome, describe
from tests.pytorch.spellings import SPELLINGS, WRAPPED, AbsentError, is_absent
from tests.pytorch.ties import without_positions


def find(name: str, variant: str = "") -> Callable[..., Any] | None:
    """Return the counterpart of an entry of PyTorch's database: another form, a function, or a method of tensors."""
    spelled = SPELLINGS.get(f"{name}.{variant}", SPELLINGS.get(name))
    if spelled is not None:
        return spelled.function
    entry = f"{name}.{variant}" if variant else name
    if entry in WRAPPED:
        return WRAPPED[entry]
    if name.startswith("__"):
        return getattr(operator, name.strip("_"), None) or functools.partial(_method, name)
    place: Any = polyhal
    *packages, last = name.split(".")
    if packages == ["nn", "functional"]:
        place = functional
    else:
        for package in packages:
            place = getattr(place, package, None)
    found = getattr(place, last, None)
    if not callable(found) and not packages and hasattr(Tensor, last):
        found = getattr(Tensor, last)
        if not callable(found):
            return functools.partial(_property, last)
    return found


def _method(name: str, x: Any, *args: Any) -> Any:
    return getattr(x, name)(*args)


def _property(name: str, x: Any) -> Any:
    return getattr(x, name)


def replay(entry: Any, dtype: torch.dtype, device: Device, *, limit: int | None = None) -> Iterator[Outcome]:
    """Replay the samples of an entry, at most `limit` evenly chosen ones."""
    name, kind = full_name(entry), str(dtype).removeprefix("torch.")
    if not entry.supports_dtype(dtype, "cpu"):
        return
    if is_absent(entry.name):
        yield Outcome(name, kind, "senseless")
        return
    function = find(entry.name, entry.variant_test_name)
    if function is None:
        count = sum(1 for _ in samples(entry, dtype, False))
        yield from [Outcome(name, kind, "missing")] * (count if limit is None else min(count, limit))
        return
    differentiable = bool(
        entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex) and not is_random(entry)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = list(samples(entry, dtype, differentiable))
        step = 1 if limit is None else max(1, len(drawn) // limit)
        for sample in drawn[::step]:
            yield _replay_sample(entry, function, sample, kind, device, differentiable)


def _is_twice(entry: Any, kind: str) -> bool:
    """Return whether second gradients are compared; those of halves are lost in rounding."""
    wrong = full_name(entry).startswith("nn.functional.linear_cross_entropy.chunked")  # PyTorch's gradgradcheck fails
    return bool(entry.supports_gradgrad and kind in ("float32", "float64") and not wrong)


def _replay_sample(
    entry: Any, function: Callable[..., Any], sample: Any, kind: str, device: Device, differentiable: bool
) -> Outcome:
    outcome = functools.partial(
        Outcome, full_name(entry), kind, call=describe([sample.input, *sample.args], sample.kwargs)
    )
    try:
        arguments = to_polyhal([sample.input, list(sample.args), dict(sample.kwargs)], device)
    except NoCounterpartError as error:
        return outcome("senseless", str(error))
    call = caller(entry, differentiable)
    try:
        theirs = sample.output_process_fn_grad(call(entry.op, sample.input, *sample.args, **sample.kwargs))
    except Exception as error:
        return outcome("senseless", f"PyTorch raises {error}")
    try:
        first, others, keywords = arguments
        ours = sample.output_process_fn_grad(call(function, first, *others, **keywords))
        drops = drops_elements(entry, sample)
        if drops or is_random(entry):
            theirs, ours = (
                [(tuple(t.shape), str(t.dtype).rstrip("_")[-4:]) for t in leaves(r)] for r in (theirs, ours)
            )
        pair = (without_positions(entry.name, results, sample) for results in (ours, theirs))
        problem = difference(
            *pair, units=int("interpolate" in entry.name or "upsample" in entry.name)
        )  # PyTorch has weights in fixed point
        if not problem and differentiable and not drops:
            inputs = [sample.input, sample.args, sample.kwargs]
            problem = gradient_difference(ours, theirs, arguments, inputs, second=_is_twice(entry, kind))
        if problem and not drops and _is_rounding(entry, call, sample, ours, theirs, arguments, differentiable):
            problem = ""
    except AbsentError as absent:
        return outcome("senseless", str(absent))
    except UnsupportedDTypeError as error:
        return outcome("senseless" if "on this device" in str(error) else "raises", f"UnsupportedDTypeError: {error}")
    except Exception as error:
        if '_backward" not implemented for' in str(error):
            return outcome("senseless", f"PyTorch raises {error}")
        return outcome("raises", f"{type(error).__name__}: {error}")
    return outcome("differs", problem) if problem else outcome("agrees")


def _is_rounding(
    entry: Any, call: Callable[..., Any], sample: Any, ours: Any, theirs: Any, arguments: Any, differentiable: bool
) -> bool:
    """Return whether results and gradients are as near to PyTorch's in float64 as PyTorch's own, so that PyTorch may be off."""
    results = [t for t in leaves(theirs) if isinstance(t, torch.Tensor)]
    if (
        is_random(entry)
        or not any(t.is_floating_point() or t.is_complex() for t in results)
        or not entry.supports_dtype(torch.float64, "cpu")
    ):
        return False
    inputs = in_double([sample.input, list(sample.args), dict(sample.kwargs)])
    truth = sample.output_process_fn_grad(call(entry.op, inputs[0], *inputs[1], **inputs[2]))
    kept = [without_positions(entry.name, r, sample) for r in (ours, theirs, truth)]
    if [t.shape for t in leaves(truth) if isinstance(t, torch.Tensor)] != [t.shape for t in results]:
        return False
    if not is_no_farther(*kept):
        return False
    if not differentiable:
        return True
    second = _is_twice(entry, str(results[0].dtype).removeprefix("torch."))
    got = polyhal_gradients(ours, arguments, theirs, second=second)
    expected = torch_gradients(theirs, [sample.input, sample.args, sample.kwargs], second=second)
    exact = torch_gradients(truth, inputs, second=second)
    return not isinstance(got, str) and is_no_farther(got[: len(expected)], expected, exact[: len(expected)])


def replay_database(
    only: str, exact: bool, dtypes: list[torch.dtype], device: Device, limit: int | None
) -> Iterator[list[Outcome]]:
    """Replay the entries whose name contains `only`, or is it if `exact`."""
    for entry in entries(only):
        if not exact or entry.name == only:
            for dtype in dtypes:
                yield list(replay(entry, dtype, device, limit=limit))
