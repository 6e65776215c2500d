"""Arguments of every attention kernel: operands, strides, lengths and the mask (see shaders/opencl/attention/arguments.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Constant, Tensor, Workspace
from polyhal.backends.common.problems.attention import AttentionShape, mask_kind, merge_batch_axes, refusal
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.gemm.arguments import longs, uints
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

Definitions = dict[str, str | int | bool]
Inputs = tuple[InputSpec | None, ...]

_FORWARD, _BACKWARD = ("q", "k", "v"), ("g", "q", "k", "v")
_RESULTS = ("out", "dq", "dk", "dv")
_WHOLE = 4
"""Features of a vector in memory."""
_BOUNDS = (16, 32, 64, 96, 128, 192, 256)
_DELTA_LANES, _DELTA_TEAMS = 8, 32


@dataclass(frozen=True, slots=True)
class Attention:
    """One call, forward (q, k, v, mask) or backward (g, q, k, v, mask, out, lse), whose first operands are `specs`."""

    names: tuple[str, ...]
    specs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    """The result; with those of the operands, backward. They may lie anywhere, their features side by side."""
    shape: AttentionShape
    mask: Spec | None
    out_dtype: DType
    causal: bool
    scale: float
    precision: str
    """Of float32, see polyhal.set_float32_matmul_precision."""
    staged: int = 0
    """Where operands are copies: the workspace that holds the first of them, before those of the others."""

    @property
    def dtype(self) -> DType:
        return self.specs[0].dtype

    @property
    def forward(self) -> bool:
        return self.names == _FORWARD

    @property
    def multiplications(self) -> int:
        """Of the scores and of the results."""
        return self.shape.count * self.shape.t * self.shape.s * (self.shape.d + self.shape.e)

    @property
    def real(self) -> str:
        """The C type of sums."""
        return real_type(self.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of a sum."""
        return 8 if self.real == "double" else 4

    @property
    def longest(self) -> int:
        """Features of a key or of a value, whichever has more."""
        return max(self.shape.d, self.shape.e)

    @property
    def temporary(self) -> int:
        """The place of the first workspace in the argument list."""
        return 6 if self.forward else 10

    @property
    def out(self) -> int:
        """The place of the first output; the logsumexp of a forward call comes next."""
        return len(self.names) + (1 if self.forward else 3)

    def gradient(self, name: str) -> Tensor:
        """The place of an output of a backward call."""
        return Tensor(self.out + _RESULTS.index(name) - 1)

    def operand(self, name: str) -> tuple[Tensor, Spec]:
        place = self.names.index(name)
        return Tensor(place), self.specs[place]

    def strides(self, name: str) -> list[Parameter]:
        place = self.names.index(name)
        return longs(*self.shape.batch_strides[place], *self.specs[place].strides[-2:])

    def places(self, *names: str) -> list[Parameter]:
        """Where results lie: their batch strides and the distance of their rows."""
        found: list[Parameter] = []
        for place in map(_RESULTS.index, names or _RESULTS[: len(self.results)]):
            found += longs(*self.shape.batch_strides[len(self.names) + place], self.results[place].strides[-2])
        return found

    def operands(self) -> list[Parameter]:
        """All operands and the mask."""
        if not self.staged:
            return [*(Tensor(i) for i in range(len(self.names))), *self.masked()]
        copies = (Workspace(self.staged + i) for i in range(len(self.names)))
        return [*(p for copy in copies for p in (copy, Constant(0, "ulong"))), *self.masked()]

    def masked(self) -> list[Parameter]:
        return [] if self.mask is None else [Tensor(len(self.names))]

    def batches(self) -> list[Parameter]:
        return uints(*self.shape.batch[1:])

    def lengths(self) -> list[Parameter]:
        s = self.shape
        scale = Constant(self.scale, "double" if self.real == "double" else "float")
        return [*uints(s.t, s.s, s.d, s.e), scale, *self.batches()]

    def mask_strides(self) -> list[Parameter]:
        if self.mask is None:
            return []
        s = self.shape
        # What leads is merged already, so that only the last two strides are wanted here.
        spread = broadcast_strides(self.mask.shape[-2:], self.mask.strides[-2:], (s.t, s.s))
        return longs(*s.batch_strides[-1], *spread)

    def numbers(self, *results: str) -> list[Parameter]:
        """Lengths, then the places of the `results` that are named, then the strides of all operands and of the mask."""
        places = self.places(*results) if results else []
        return [*self.lengths(), *places, *(p for n in self.names for p in self.strides(n)), *self.mask_strides()]

    def definitions(self, **more: str | int | bool) -> Definitions:
        common: Definitions = {
            "DTYPE": self.dtype.name, "REAL": self.real, "CAUSAL": self.causal, "MASK": mask_kind(self.mask)
        }  # fmt: skip
        if self.out_dtype is not self.dtype:
            common["OUT_DTYPE"] = self.out_dtype.name
        if self.mask is not None:
            common["MASK_DTYPE"] = self.mask.dtype.name
        return common | more

    def whole(self, elements: int = _WHOLE) -> bool:
        """Whether the features of every operand lie in whole aligned vectors of `elements`."""
        return all(_whole(s, steps, elements) for s, steps in zip(self.specs, self.shape.batch_strides, strict=False))

    def results_whole(self, elements: int = _WHOLE) -> bool:
        """The same of the results."""
        steps = self.shape.batch_strides[len(self.names) :]
        return all(_whole(s, st, elements) for s, st in zip(self.results, steps, strict=False))


def _whole(spec: Spec, steps: tuple[int, ...], elements: int) -> bool:
    return (
        spec.aligned
        and spec.strides[-1] == 1
        and spec.shape[-1] % elements == 0
        and all(n % elements == 0 for n in (spec.strides[-2], *steps))
    )


def padded(features: int) -> int:
    """The compiled bound for a number of features: few distinct values, so that few programs are built."""
    return next((n for n in _BOUNDS if features <= n), features)


def forward(inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Attention | Declined:
    return _call(_FORWARD, inputs[:3], inputs[3], outputs[:1], params)


def backward(inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Attention | Declined:
    g, q, k, v, mask, out, lse = inputs
    if not isinstance(lse, Spec) or lse.dtype.name != (
        "float64" if q and real_type(q.dtype) == "double" else "float32"
    ):
        return Declined("a logsumexp of an unexpected dtype")
    if not isinstance(out, Spec) or not lse.is_contiguous:
        return Declined("the saved results are not contiguous")
    if refusal((g, out), None):
        return Declined(refusal((g, out), None))
    return _call(_BACKWARD, (g, q, k, v), mask, (out, *outputs), params)


def _call(
    names: tuple[str, ...],
    operands: Inputs,
    mask: InputSpec | None,
    results: tuple[Spec, ...],
    params: Mapping[str, Any],
) -> Attention | Declined:
    reason = refusal(operands, mask)
    if reason:
        return Declined(reason)
    if any(r.strides[-1] != 1 and r.shape[-1] > 1 for r in results):
        return Declined("the features of a result do not lie side by side")
    specs: Sequence[Spec] = [o for o in operands if isinstance(o, Spec)]
    q, _, v = specs[-3:]
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    given = mask if isinstance(mask, Spec) else None
    shape = merge_batch_axes([*specs, *results], given, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    return Attention(
        names, tuple(specs), results, shape, given, results[0].dtype, bool(params["causal"]), float(params["scale"]),
        params.get("precision", "highest"),
    )  # fmt: skip


def delta(runtime: Runtime, call: Attention, target: Workspace, statistics: bool = False) -> Launch:
    """What a backward call needs of each query besides its logsumexp, as `itemsize` bytes per query in `target`.

    With `statistics` in pairs with the logsumexp, twice as many bytes.
    """
    lanes = _DELTA_LANES
    teams = min(_DELTA_TEAMS, power_of_two_at_most(runtime.features.max_group_size) // lanes)
    rows = call.shape.count * call.shape.t
    logsums = [Tensor(6)] if statistics else []
    parameters: list[Parameter] = [
        Tensor(0), Tensor(5), *logsums, target, *uints(rows, call.shape.t, call.shape.e),
        *call.batches(), *call.strides("g"), *call.places("out"),
    ]  # fmt: skip
    definitions: Definitions = {
        "DTYPE": call.dtype.name, "REAL": call.real, "LANES": lanes, "TEAMS": teams, "STATISTICS": statistics,
        "WHOLE": call.results_whole() and call.whole(),
    }  # fmt: skip
    items, group = (ceil_div(rows, teams) * lanes * teams,), (lanes * teams,)
    return runtime.launch("attention_delta", "attention/delta", definitions, parameters, items, group)
