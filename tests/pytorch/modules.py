"""Replay PyTorch's database of layers: compare state by name, output, gradients and running statistics."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from polyhal import Device, nn
from tests.pytorch.compare import difference
from tests.pytorch.convert import NoCounterpartError, array, leaves, to_polyhal
from tests.pytorch.gradients import gradient_difference
from tests.pytorch.outcome import Outcome, describe

_DRAWS = ("FractionalMaxPool2d", "FractionalMaxPool3d", "RReLU")
"""Layers whose results are drawn."""


@functools.cache
def module_database() -> tuple[Any, ...]:
    """Return all entries (`ModuleInfo`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db

    return tuple(module_db)


def replay_database(
    only: str, exact: bool, dtypes: list[torch.dtype], device: Device, limit: int | None
) -> Iterator[list[Outcome]]:
    """Replay the layers whose name contains `only`, or is it if `exact`, in training and evaluation."""
    for entry in module_database():
        name = entry.module_cls.__name__
        if name == only or (not exact and only in name):
            for dtype in dtypes:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield list(replay(entry, dtype, device, limit=limit))


def replay(entry: Any, dtype: torch.dtype, device: Device, *, limit: int | None = None) -> Iterator[Outcome]:
    """Replay the samples of a layer, at most `limit` evenly chosen ones of each mode."""
    for sample, training in samples(entry, dtype, limit):
        yield _replay_sample(entry.module_cls, sample, dtype, device, training)


def samples(entry: Any, dtype: torch.dtype, limit: int | None) -> Iterator[tuple[Any, bool]]:
    """Samples of a layer, on the CPU, and whether they are for training: at most `limit` evenly chosen ones of each mode."""
    if dtype not in entry.dtypes and not dtype.is_floating_point:
        return
    for training in (True, False):
        torch.manual_seed(0)
        drawn = [
            sample
            for sample in entry.module_inputs_func(
                entry, device="cpu", dtype=dtype, requires_grad=True, training=training
            )
            if sample.forward_input is not None
        ]
        step = 1 if limit is None else max(1, len(drawn) // limit)
        for sample in drawn[::step]:
            yield sample, training


def _replay_sample(kind: Any, sample: Any, dtype: torch.dtype, device: Device, training: bool) -> Outcome:
    make, call = sample.constructor_input, sample.forward_input
    text = f"({describe(make.args, make.kwargs)})({describe(call.args, call.kwargs)}) training={training}"
    outcome = functools.partial(Outcome, kind.__name__, str(dtype).removeprefix("torch."), call=text)
    if not hasattr(nn, kind.__name__):
        return outcome("missing")
    try:
        arguments, inputs = (to_polyhal([list(f.args), f.kwargs], device) for f in (make, call))
    except NoCounterpartError as error:
        return outcome("senseless", str(error))
    try:
        theirs = kind(*make.args, **make.kwargs).to(dtype).train(training)
        if isinstance(theirs, torch.nn.modules.lazy.LazyModuleMixin):
            theirs(*call.args, **call.kwargs)  # makes its parameters
        state = {name: array(value).copy() for name, value in theirs.state_dict().items()}
        expected = theirs(*call.args, **call.kwargs)
    except Exception as error:
        return outcome("senseless", f"PyTorch raises {error}")
    try:
        ours = getattr(nn, kind.__name__)(*arguments[0], **arguments[1])
        ours.to(device, str(dtype).removeprefix("torch.")).train(training)
        problem = _difference(ours, theirs, state, inputs, [call.args, call.kwargs], expected, kind.__name__ in _DRAWS)
    except Exception as error:
        return outcome("raises", f"{type(error).__name__}: {error}")
    return outcome("differs", problem) if problem else outcome("agrees")


def _difference(
    ours: nn.Module, theirs: Any, state: dict[str, Any], inputs: Any, their_inputs: Any, expected: Any, drawn: bool
) -> str:
    """Load `state` into `ours`, call it, and describe differences from PyTorch's layer, which was called already."""
    text = repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")
    if isinstance(ours, nn.CTCLoss):
        # PyTorch's gradient is the one through the log-softmax that comes before; of logarithms it is the identity.
        compute = ours.forward
        ours.forward = lambda x, *rest: compute(nn.functional.log_softmax(x, -1), *rest)  # type: ignore[method-assign]
    values, keywords = inputs
    if type(ours).__name__.startswith("Lazy"):
        ours(*values, **keywords)
    printed = repr(ours)
    if list(ours.state_dict()) != list(state):
        return f"state {list(ours.state_dict())}, expected {list(state)}"
    ours.load_state_dict(state)
    out = ours(*values, **keywords)
    if drawn:
        same = [tuple(t.shape) for t in leaves(out)] == [tuple(t.shape) for t in leaves(expected)]
        return "" if same else "shapes differ"
    problem = difference(out, expected, tolerance=2.0)
    if not problem:
        problem = difference(list(ours.state_dict().values()), list(theirs.state_dict().values()), tolerance=2.0)
        problem = problem and f"state after the call: {problem}"
    if not problem:
        problem = gradient_difference(
            out, expected, [list(ours.parameters()), *inputs], [list(theirs.parameters()), *their_inputs]
        )
    if not problem and printed != text:
        problem = f"printed as {printed}, expected {text}"
    return problem
