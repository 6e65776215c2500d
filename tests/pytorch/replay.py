"""Replays PyTorch's sample calls on a device: results, dtypes and gradients beside PyTorch's."""

from __future__ import annotations

import functools
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

import polyhal
from polyhal import Device, Tensor
from polyhal.nn import functional
from tests.pytorch.compare import difference
from tests.pytorch.convert import NoCounterpartError, leaves, to_polyhal
from tests.pytorch.database import full_name, samples
from tests.pytorch.spellings import SPELLINGS, AbsentError, is_absent

Verdict = Literal["agrees", "differs", "raises", "missing", "senseless"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one sample call went."""

    name: str
    dtype: str
    verdict: Verdict
    detail: str = ""
    call: str = ""


def find(name: str, variant: str = "") -> Callable[..., Any] | None:
    """What stands for an entry of PyTorch's database here: a spelling, a function, or a method of tensors."""
    spelled = SPELLINGS.get(f"{name}.{variant}", SPELLINGS.get(name))
    if spelled is not None:
        return spelled.function
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
    if found is None and not packages and hasattr(Tensor, last):
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
    differentiable = bool(entry.supports_autograd and dtype.is_floating_point and not is_random(entry))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = list(samples(entry, dtype, differentiable))
        step = 1 if limit is None else max(1, len(drawn) // limit)
        for sample in drawn[::step]:
            yield _replay_sample(entry, function, sample, kind, device, differentiable)


def is_random(entry: Any) -> bool:
    """Whether results are drawn: shape and dtype can be compared, and no more."""
    return entry.name.rpartition(".")[2] in _RANDOM or "dropout" in entry.name


_RANDOM = frozenset(
    [
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "uniform",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "rrelu",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "svd_lowrank",
        "pca_lowrank",
    ]
)


def _replay_sample(
    entry: Any, function: Callable[..., Any], sample: Any, kind: str, device: Device, differentiable: bool
) -> Outcome:
    outcome = functools.partial(Outcome, full_name(entry), kind, call=_describe(sample))
    try:
        arguments = to_polyhal([sample.input, list(sample.args), dict(sample.kwargs)], device)
    except NoCounterpartError as error:
        return outcome("senseless", str(error))
    try:
        theirs = sample.output_process_fn_grad(entry(sample.input, *sample.args, **sample.kwargs))
    except Exception as error:
        return outcome("senseless", f"PyTorch raises {error}")
    try:
        first, others, keywords = arguments
        ours = sample.output_process_fn_grad(function(first, *others, **keywords))
        if is_random(entry):
            theirs, ours = ([(tuple(t.shape), str(t.dtype)[-4:]) for t in leaves(r)] for r in (theirs, ours))
        problem = difference(ours, theirs)
        if not problem and differentiable:
            problem = _gradient_difference(ours, theirs, arguments, [sample.input, sample.args, sample.kwargs])
    except AbsentError as absent:
        return outcome("senseless", str(absent))
    except Exception as error:
        return outcome("raises", f"{type(error).__name__}: {error}")
    return outcome("differs", problem) if problem else outcome("agrees")


def _gradient_difference(ours: Any, theirs: Any, our_inputs: Any, their_inputs: Any) -> str:
    """What differs between gradients of the same weighted sum of all results."""
    wanted = [t for t in leaves(their_inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t for t in leaves(theirs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not outputs:
        return ""
    mine = [t for t in leaves(our_inputs) if isinstance(t, Tensor) and t.requires_grad]
    results = [t for t in leaves(ours) if isinstance(t, Tensor) and t.requires_grad]
    if len(results) != len(outputs):
        return f"{len(results)} results carry gradients, expected {len(outputs)}"
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in outputs]
    expected = torch.autograd.grad(outputs, wanted, weights, allow_unused=True)
    got = polyhal.grad(results, mine, [to_polyhal(w, results[0].device) for w in weights], allow_unused=True)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        zero = torch.zeros_like(wanted[number])
        problem = difference(
            zero if a is None else a,
            zero if b is None else b.to_dense() if b.layout is not torch.strided else b,
            tolerance=4.0,
        )
        if problem:
            return f"gradient {number}: {problem}"
    return ""


def _describe(sample: Any) -> str:
    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(text, value))}]"
        return repr(value)

    values = [text(sample.input), *map(text, sample.args), *(f"{k}={text(v)}" for k, v in sample.kwargs.items())]
    return ", ".join(values)[:160]


def summary(outcomes: list[Outcome]) -> str:
    """Counts by verdict, and the share of sensible cases that agree."""
    counts = Counter(o.verdict for o in outcomes)
    sensible = sum(counts.values()) - counts["senseless"]
    share = 100 * counts["agrees"] / sensible if sensible else 100.0
    names = {o.name for o in outcomes if o.verdict != "senseless"}
    bad = {o.name for o in outcomes if o.verdict not in ("senseless", "agrees")}
    listed = ", ".join(f"{counts[v]} {v}" for v in ("agrees", "differs", "raises", "missing", "senseless"))
    return f"{listed}: {share:.2f} % of {sensible} cases agree; {len(names - bad)} of {len(names)} entries wholly"
