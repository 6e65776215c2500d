"""Run a case on the CPU and on the device: measure differences, and list ops that did not run on the device."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import polyhal.torch
from tests.torch.libraries.cases import Case, Given

TOLERANCE = 1e-4
"""Maximum difference of a tensor, relative to its largest element."""
FACTOR = 2
"""Maximum ratio of the device's to the CPU's error from float64, for cases in which float32 exceeds the tolerance."""
_FLOOR = 1e-4
"""Minimum scale of a gradient, as a fraction of the largest: gradients such as of key biases are only rounding."""


@dataclass
class Result:
    """Result of one case."""

    library: str
    version: str
    name: str
    state: str
    """agrees, differs or fails"""
    outputs: float = 0.0
    gradients: float = 0.0
    calls: int = 0
    """Calls of ops with tensors of the device."""
    on_cpu: dict[str, int] = field(default_factory=dict)
    """Calls by op that ran on the CPU."""
    decomposed: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    from_exact: tuple[float, float] | None = None
    """Largest differences of the device and of the CPU from float64, if they differ by more than the tolerance."""
    detail: str = ""

    @property
    def native(self) -> float:
        """Fraction of calls that ran on the device."""
        return 1 - sum(self.on_cpu.values()) / self.calls if self.calls else 1.0


class _Calls(TorchDispatchMode):
    """Counts calls of ops with tensors of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs, out))
        if any(isinstance(x, torch.Tensor) and x.device.type == "polyhal" for x in leaves):
            self.counts[str(func)] += 1
        return out


def compare(case: Case, version: str) -> Result:
    """Run a case on both devices. Any exception is a failure."""
    os.environ["POLYHAL_FALLBACK"] = "allow"
    result = Result(case.library, version, case.name, "fails")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = case.run("cpu")
            polyhal.torch.reset_report()
            begin = time.perf_counter()
            with _Calls() as calls:
                found = case.run("polyhal")
            result.seconds = round(time.perf_counter() - begin, 2)
    except Exception as error:
        result.detail = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
        return result
    report = polyhal.torch.report()
    result.calls = sum(calls.counts.values())
    result.on_cpu = {n: f.calls for n, f in sorted(report.on_cpu.items())}
    result.decomposed = dict(sorted(report.decomposed.items()))
    result.detail = _mismatch(found, expected) if result.calls else "nothing ran on the device"
    if not result.detail:
        result.outputs, result.gradients = _differences(found, expected)
    if result.detail or max(result.outputs, result.gradients) <= TOLERANCE:
        result.state = "differs" if result.detail else "agrees"
    elif case.exact is None:
        result.state = "differs"
    else:
        exact = case.exact()
        device, cpu = max(_differences(found, exact)), max(_differences(expected, exact))
        result.from_exact = device, cpu
        result.state = "agrees" if device <= FACTOR * cpu else "differs"
    return result


def _differences(found: Given, expected: Given) -> tuple[float, float]:
    """Return the largest differences of outputs and of gradients."""
    pairs = [(found.gradients[n], g) for n, g in expected.gradients.items()]
    largest = max((g.abs().max().item() for g in expected.gradients.values() if g.numel()), default=0.0)
    return _worst(zip(found.outputs, expected.outputs, strict=True), 0.0), _worst(pairs, _FLOOR * largest)


def _mismatch(found: Given, expected: Given) -> str:
    if [x.shape for x in found.outputs] != [x.shape for x in expected.outputs]:
        return "outputs of other shapes"
    if found.gradients.keys() != expected.gradients.keys():
        return f"gradients of {len(found.gradients)} parameters instead of {len(expected.gradients)}"
    return ""


def _worst(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], floor: float) -> float:
    worst = 0.0
    for a, b in pairs:
        if not b.numel():
            continue
        if not b.is_floating_point():
            worst = max(worst, float(not torch.equal(a, b)))
            continue
        error, size = (a.double() - b.double()).abs().max().item(), b.double().abs().max().item()
        worst = max(worst, error / max(size, floor, 1e-30)) if error == error else float("inf")
    return float(f"{worst:.2g}")
