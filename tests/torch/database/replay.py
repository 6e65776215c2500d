"""Replay the sample calls of an entry on the device: compare results and gradients with the CPU's, and trace each op."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import polyhal.torch
from tests.pytorch.compare import difference, in_double, is_no_farther
from tests.pytorch.convert import leaves
from tests.pytorch.database import caller, drops_elements, full_name, is_random, samples
from tests.pytorch.gradients import torch_gradients
from tests.pytorch.outcome import describe
from tests.pytorch.ties import without_positions
from tests.torch.comparison import moved
from tests.torch.database import chance
from tests.torch.database.states import EntryOutcome, Kind, Outcome, worst

DEVICE = "polyhal"
SAMPLES = 5
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
"""Dtypes in order of preference for the replay of an entry."""
_LONGEST = 200
"""Maximum length of texts about refusals and differences."""
_ROUNDED = (torch.float16, torch.bfloat16, torch.float32, torch.complex64)
_UNSEEN = frozenset({"generator", "pin_memory"})
"""Keywords of samples that are dropped, because their values belong to one device."""


def replay(entry: Any, limit: int = SAMPLES, dtype: torch.dtype | None = None) -> EntryOutcome | None:
    """Replay up to `limit` evenly chosen samples in each form that the entry has, in a dtype or the first that it has.

    Returns None if the CPU refuses all samples.
    """
    if dtype is None:
        dtype = next((d for d in _DTYPES if d in entry.dtypes), torch.float32)
    elif dtype not in entry.dtypes:
        return None
    differentiable = bool(entry.supports_autograd and dtype.is_floating_point and not is_random(entry))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = list(samples(entry, dtype, differentiable, _UNSEEN))
        chosen = [_Calls(entry, s, differentiable) for s in drawn[:: -(-len(drawn) // limit) or 1]]
        known = [c for c in chosen if c.expected is not None]
        function = worst([c.function() for c in known])
        if function is None:
            return None
        kinds = {c.kind for c in known}
        return EntryOutcome(
            full_name(entry),
            str(dtype).removeprefix("torch."),
            kinds.pop() if len(kinds) == 1 else "",
            function,
            worst(o for c in known for o in c.in_place()),
            worst(o for c in known for o in c.out()),
        )


class _Calls:
    """The calls of one sample."""

    def __init__(self, entry: Any, sample: Any, differentiable: bool) -> None:
        self.entry, self.sample = entry, sample
        self.call = caller(entry, differentiable)
        self.drops = drops_elements(entry, sample) or is_random(entry)
        self.differentiable = differentiable and not self.drops
        self.inputs: Any = [sample.input, list(sample.args), dict(sample.kwargs)]
        self.expected: Any = None
        self.kind: Kind = ""
        with contextlib.suppress(Exception):  # samples that PyTorch's CPU refuses do not count
            found = self._call(self.inputs)
            self.kind = _kind_of([*leaves(self.inputs), *leaves(found)])
            self.expected = list(leaves(sample.output_process_fn_grad(found)))

    def _moved(self, inputs: Any) -> list[Any]:
        """Move the inputs to the device, except indices of splits, which PyTorch requires on the CPU."""
        first, args, keywords = moved(inputs, DEVICE)
        if "device" in keywords:
            keywords["device"] = DEVICE
        return [first, inputs[1] if self.entry.name == "tensor_split" else args, keywords]

    def _call(self, inputs: Any, function: Any = None) -> Any:
        first, args, keywords = inputs
        return self.call(function or self.entry.op, first, *args, **keywords)

    def _results(self, inputs: Any, function: Any = None) -> Any:
        return self.sample.output_process_fn_grad(self._call(inputs, function))

    def function(self) -> Outcome:
        """Replay the function with its gradient."""
        return self._observed(self._compare)

    def _compare(self) -> str:
        inputs = self._moved(self.inputs)
        if self.drops:
            return chance.difference(
                self.entry.name,
                lambda: self._results(inputs),
                lambda: self._results(self.inputs),
                dependent=not is_random(self.entry) or "dropout" in self.entry.name,
            )
        found = list(leaves(self._results(inputs)))
        elsewhere = {str(t.device) for t in found if isinstance(t, torch.Tensor)} - {f"{DEVICE}:0"}
        if elsewhere and "cpu" not in map(str, leaves(inputs[1:])):
            return f"results lie on {', '.join(elsewhere)}"
        problem = self._difference(found, self.expected)
        gradients: list[Any] = []
        if not problem and self.differentiable:
            gradients = _down(torch_gradients(found, inputs))
            problem = difference(gradients, torch_gradients(self.expected, self.inputs), tolerance=4.0)
            problem = problem and f"gradient: {problem}"
        return "" if problem and self._is_rounding(found, gradients) else problem

    def _difference(self, found: Any, expected: Any) -> str:
        pair = [without_positions(self.entry.name, _down(results), self.sample) for results in (found, expected)]
        # PyTorch's CPU has fixed-point weights
        units = int("interpolate" in self.entry.name or "upsample" in self.entry.name)
        return difference(*pair, units=units)

    def _is_rounding(self, found: Any, gradients: list[Any]) -> bool:
        """Return whether results and gradients are as close to float64 as the CPU's, which may round differently."""
        inputs = in_double(self.inputs)
        truth = self._truth(inputs)
        if truth is None or not self._is_no_farther(found, self.expected, truth):
            return False
        if not self.differentiable:
            return True
        if not gradients:
            mine = self._moved(self.inputs)
            gradients = _down(torch_gradients(self._results(mine), mine))
        return is_no_farther(gradients, torch_gradients(self.expected, self.inputs), torch_gradients(truth, inputs))

    def _truth(self, inputs: Any) -> Any:
        """Return the results of the function in float64; None if they differ by more than rounding, or are not floats."""
        if not any(isinstance(t, torch.Tensor) and t.dtype in _ROUNDED for t in self.expected):
            return None
        truth = list(leaves(self._results(inputs)))
        shapes = [[getattr(t, "shape", None) for t in results] for results in (truth, self.expected)]
        return truth if shapes[0] == shapes[1] else None

    def _is_no_farther(self, found: Any, expected: Any, truth: Any) -> bool:
        triple = (_down(found), expected, truth)
        return is_no_farther(*(without_positions(self.entry.name, r, self.sample) for r in triple))

    def _rounded_difference(self, found: Any, expected: Any) -> str:
        """Describe the `_difference`, except for results as close to float64 as the CPU's."""
        problem = self._difference(found, expected)
        if not problem:
            return ""
        truth = self._truth(in_double(self.inputs))
        if truth is None or [t.shape for t in found] != [t.shape for t in truth]:
            return problem
        return "" if self._is_no_farther(found, expected, truth) else problem

    def in_place(self) -> Iterator[Outcome]:
        """Replay the in-place method, if the CPU supports it for the sample."""
        function = self.entry.inplace_variant
        if function is None or self.drops or not isinstance(self.sample.input, torch.Tensor):
            return
        inputs = _copies(self.inputs)
        try:
            self._results(inputs, function)
        except Exception:
            return
        if inputs[0].shape != self.sample.input.shape:
            return  # the CPU lets a few ops resize a 0-d tensor

        def compare() -> str:
            mine = self._moved(_copies(self.inputs))
            self._results(mine, function)
            return self._rounded_difference([mine[0]], [inputs[0]])

        yield self._observed(compare)

    def out(self) -> Iterator[Outcome]:
        """Replay the function with `out=`, if the CPU supports it for the sample."""
        if not self.entry.supports_out or self.drops or not all(isinstance(t, torch.Tensor) for t in self.expected):
            return

        def call(inputs: Any, device: str) -> Any:
            outputs = [torch.empty_like(t, device=device, requires_grad=False) for t in self.expected]
            inputs[2]["out"] = outputs[0] if len(outputs) == 1 else tuple(outputs)
            return list(leaves(self._results(inputs)))

        try:
            expected = call(_copies(self.inputs), "cpu")
        except Exception:
            return
        yield self._observed(
            lambda: self._rounded_difference(call(self._moved(_copies(self.inputs)), DEVICE), expected)
        )

    def _observed(self, compare: Callable[[], str]) -> Outcome:
        """Run a comparison and record how its ops ran."""
        polyhal.torch.reset_report()
        has_tensors = any(isinstance(t, torch.Tensor) for t in leaves(self.inputs))
        place = contextlib.nullcontext() if has_tensors else torch.device(DEVICE)
        text = describe([self.sample.input, *self.sample.args], self.sample.kwargs)
        try:
            with place:
                problem = compare()
        except Exception as error:
            return Outcome("refused", (), f"({text}) {type(error).__name__}: {error}".split("\n")[0][:_LONGEST])
        report = polyhal.torch.report()
        if problem:
            return Outcome("differs", (), f"({text}) {problem}"[:_LONGEST])
        if report.on_cpu:
            return Outcome("cpu", tuple(_short(n) for n in report.on_cpu))
        if report.decomposed:
            return Outcome("decomposed", tuple(_short(n) for n in report.decomposed))
        return Outcome("device")


def _copies(inputs: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, inputs)


def _down(results: Any) -> list[Any]:
    return [t.detach().cpu() if isinstance(t, torch.Tensor) else t for t in leaves(results)]


def _short(op: str) -> str:
    return op.removeprefix("aten.").removesuffix(".default")


def _kind_of(values: list[Any]) -> Kind:
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if any(t.is_complex() for t in tensors):
        return "complex"
    if any(t.layout is not torch.strided for t in tensors):
        return "sparse"
    return "quantised" if any(map(_is_quantised, tensors)) else ""


def _is_quantised(t: torch.Tensor) -> bool:
    return t.is_quantized or (t.is_floating_point() and t.element_size() == 1)
