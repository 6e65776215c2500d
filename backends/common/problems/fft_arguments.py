"""Arguments of the kernels of Fourier transforms: geometry and tables, for every shader language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Table
from polyhal.backends.common.problems.fft import HalfSpectrum, Pass, Plane, Planes
from polyhal.backends.common.problems.fft_tables import Numbers, fine_and_coarse, fine_count, packed, roots, stage_roots

Value = int | tuple[int, ...]
_STRIDES = (0,) * 6


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """Definitions, members of the geometry, and the table of a step."""

    definitions: Mapping[str, int]
    geometry: Mapping[str, Value]
    table: Table


def pass_arguments(step: Pass, lanes: int, itemsize: int, *, vectors: bool = False) -> KernelArguments:
    """Return the arguments of a pass whose groups have `lanes` rows, with `vectors` in the lanes of one vector."""
    load, store = step.load, step.store
    table = _Roots(stage_roots(step.radices))
    half = store.kind == "half"
    whole = step.length if half else load.length
    geometry = {
        **_strides("source", step.source),
        **_strides("target", step.target),
        "mirror_re": _along(step.target.re) if half else load.steps[0],
        "mirror_im": _along(step.target.im) if half else load.steps[1],
        "outer": step.outer,
        "source_position": step.source_position,
        "target_position": step.target_position,
        "lanes": step.lanes,
        "blocks": ceil_div(step.lanes, lanes),
        "source_count": load.count,
        "target_count": store.count,
        "whole": whole,
        "source_factors": table.add(load.factors),
        "target_factors": table.add(store.factors),
        **table.powers("fine", "coarse", "fine_bits", step.twiddled),
        **table.powers("half_fine", "half_coarse", "half_bits", 2 * whole),
        "lane_roots": table.add(_lane_roots(step, lanes)) if vectors and step.twiddled else 0,
    }
    definitions = {
        **_parts(step.source, step.target),
        "LENGTH": step.length,
        "STAGES": len(step.radices),
        **{f"RADIX_{i}": radix for i, radix in enumerate(step.radices)},
        "HALF_SOURCE": ("complex", "half_even", "half_odd").index(load.kind),
        "HALF_TARGET": int(half),
        "SOURCE_CUT": int(load.count > 0),
        "TARGET_CUT": int(store.count > 0),
        "SOURCE_FACTORS": int(load.factors is not None),
        "TARGET_FACTORS": int(store.factors is not None),
        "TWIDDLED": int(step.twiddled > 0),
    }
    return KernelArguments(definitions, geometry, table.table(itemsize))


def half_spectrum_arguments(step: HalfSpectrum, itemsize: int) -> KernelArguments:
    """Return the arguments of the last step of long real transforms."""
    table = _Roots()
    geometry = {
        **_strides("source", step.source.each(_over_elements)),
        **_strides("target", step.target.each(_over_elements)),
        "mirror_re": _along(step.target.re),
        "mirror_im": _along(step.target.im),
        "outer": (*step.outer, 1),
        "source_position": (0, 0, 0),
        "target_position": (0, 0, 0),
        "lanes": 1,
        "blocks": 1,
        "source_count": 0,
        "target_count": 0,
        "whole": step.length,
        "source_factors": 0,
        "target_factors": 0,
        "fine": 0,
        "coarse": 0,
        "fine_bits": 0,
        **table.powers("half_fine", "half_coarse", "half_bits", 2 * step.length),
        "lane_roots": 0,
    }
    return KernelArguments({}, geometry, table.table(itemsize))


class _Roots:
    """Parts of a table, and the indices at which they begin."""

    def __init__(self, *parts: Numbers) -> None:
        self._parts = list(parts)

    def add(self, numbers: Numbers | None) -> int:
        """Add a part and return its beginning; without numbers, 0."""
        if numbers is None:
            return 0
        self._parts.append(numbers)
        return sum(len(p) for p in self._parts[:-1])

    def powers(self, fine: str, coarse: str, bits: str, order: int) -> dict[str, int]:
        """Add the roots of unity of an order, by powers below a power of two and multiples of it; nothing if it is 0."""
        if not order:
            return dict.fromkeys((fine, coarse, bits), 0)
        low, high = fine_and_coarse(order)
        return {fine: self.add(low), coarse: self.add(high), bits: fine_count(order).bit_length() - 1}

    def table(self, itemsize: int) -> Table:
        """Return the table, in complex numbers of parts of `itemsize` bytes."""
        return Table(packed(self._parts, itemsize))


def _lane_roots(step: Pass, lanes: int) -> Numbers:
    """Return the roots that results k of the first lanes are multiplied by: for each k, real parts, then imaginary parts."""
    powers = np.arange(step.length)[:, None] * np.arange(lanes)
    found = roots(powers.reshape(-1), step.twiddled).reshape(step.length, lanes)
    parts = np.stack((found.real, found.imag), 1).reshape(-1, 2)
    return np.asarray(parts[:, 0] + 1j * parts[:, 1])


def _strides(name: str, planes: Planes) -> dict[str, Value]:
    parts = (("re", planes.re), ("im", planes.im))
    return {f"{name}_{part}_strides": plane.strides if plane is not None else _STRIDES for part, plane in parts}


def _along(plane: Plane | None) -> int:
    """Return the stride along elements."""
    return 0 if plane is None else plane.strides[-1]


def _over_elements(plane: Plane) -> Plane:
    *outer, step = plane.strides
    return Plane(plane.memory, (*outer, 0, 0, step), plane.start)


def _parts(source: Planes, target: Planes) -> dict[str, int]:
    """Return which parts of an operand and of a result are in memory."""
    return {
        "SOURCE_IM": int(source.im is not None),
        "TARGET_RE": int(target.re is not None),
        "TARGET_IM": int(target.im is not None),
    }
