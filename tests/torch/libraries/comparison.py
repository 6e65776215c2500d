"""Differences of a program's results from the CPU's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tests.torch.libraries.cases import Case, Program

TOLERANCE = 1e-4
"""Maximum difference of a tensor, relative to its largest element."""
FACTOR = 2
"""Maximum ratio of the device's to the CPU's error from float64, for cases in which float32 exceeds the tolerance."""
LIMIT = 1e-2
"""Maximum error of the CPU's float32 from float64 for that rule: two results that are further from it may share no digit."""
_FLOOR = 1e-4
"""Minimum scale of a gradient, as a fraction of the largest: gradients such as of key biases are only rounding."""
_ZERO = 1e-12
"""Maximum gradient in float64, as a fraction of the largest, that is zero but for rounding."""


@dataclass
class Results:
    """Results of a program on one device, on the CPU."""

    outputs: list[torch.Tensor]
    """Outputs of all steps."""
    gradients: dict[str, torch.Tensor]
    """Gradients after the last step."""
    state: dict[str, torch.Tensor]
    """Parameters and buffers after the last step."""


@dataclass
class Differences:
    """Largest differences, relative to the largest element of their tensor."""

    outputs: float = 0.0
    gradients: float = 0.0
    state: float = 0.0

    @property
    def largest(self) -> float:
        """Largest of the three."""
        return max(self.outputs, self.gradients, self.state)


def run(case: Case, program: Program) -> Results:
    """Run a program as often as its case says."""
    outputs = [x.detach().cpu().clone() for _ in range(case.steps) for x in program.step()]
    return Results(outputs, program.gradients(), program.state())


def exact(case: Case) -> Results | None:
    """Run a program on the CPU in float64, if it supports that."""
    if not case.is_exact_in_float64:
        return None
    try:
        return run(case, case.build("cpu", torch.float64, "eager"))
    except (RuntimeError, TypeError, ValueError):  # the library makes float32 tensors of its own
        return None


def mismatch(found: Results, expected: Results) -> str:
    """Return a sentence if results cannot be compared by tensor."""
    if [x.shape for x in found.outputs] != [x.shape for x in expected.outputs]:
        return "outputs of other shapes"
    if found.gradients.keys() != expected.gradients.keys():
        return f"gradients of {len(found.gradients)} parameters instead of {len(expected.gradients)}"
    return ""


def differences(found: Results, expected: Results) -> Differences:
    """Return the largest differences of two results."""
    return Differences(
        _worst(zip(found.outputs, expected.outputs, strict=True), 0.0),
        _named(found.gradients, expected.gradients),
        _named(found.state, expected.state),
    )


def decided(results: Results, reached: Results) -> Results:
    """Return results without the parameters whose gradient is zero in float64: in float32, rounding alone moves them.

    The softmax does not depend on the bias of keys, for example.
    """
    sizes = {n: x.abs().max().item() for n, x in reached.gradients.items() if x.numel()}
    idle = {n for n, size in sizes.items() if size < _ZERO * max(sizes.values())}

    def kept(named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {n: x for n, x in named.items() if n not in idle}

    return Results(results.outputs, kept(results.gradients), kept(results.state))


def _named(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    largest = max((x.abs().max().item() for x in expected.values() if x.numel()), default=0.0)
    return _worst(((found[n], x) for n, x in expected.items()), _FLOOR * largest)


def _worst(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], floor: float) -> float:
    worst = 0.0
    for a, b in pairs:
        if not b.numel():
            continue
        if a.is_complex() and b.is_complex():
            a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
        if not b.is_floating_point():
            worst = max(worst, float(not torch.equal(a, b)))
            continue
        is_finite = b.isfinite()
        if not torch.equal(a.isfinite(), is_finite) or not torch.equal(a.isnan(), b.isnan()):
            return float("inf")
        a, b = a.double()[is_finite], b.double()[is_finite]
        if b.numel():
            worst = max(worst, (a - b).abs().max().item() / max(b.abs().max().item(), floor, 1e-30))
    return float(f"{worst:.2g}")
