"""A call of attention or of its gradient, and its kernel arguments (shaders/opencl/attention/geometry.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Argument, Strided, Tensor, Workspace
from polyhal.backends.common.problems.attention import AttentionShape, mask_kind, merge_batch_axes, refusal
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Definitions = dict[str, str | int | bool]
Inputs = tuple[InputSpec | None, ...]
Args = dict[str, Argument]

_FORWARD, _BACKWARD = ("q", "k", "v"), ("g", "q", "k", "v")
_RESULTS = ("out", "dq", "dk", "dv")
_BACKWARD_OUT, _BACKWARD_LOGSUMEXP = 5, 6
"""Indices of the saved results among the inputs of a backward call."""
_VECTOR = 4
"""Contiguous features that most kernels read at once."""
_BOUNDS = (16, 32, 64, 96, 128, 192, 256)
"""Head sizes that programs are compiled for; others are padded to the next one."""


@dataclass(frozen=True, slots=True)
class CacheLengths:
    """The filled positions of a key-value cache, in place of a mask."""

    spec: Spec
    heads: int
    """Heads of queries per sequence, or of keys if queries that share keys are rows."""
    position_step: int
    """Positions from a query to the next one: 0 if they are heads that share keys."""
    window: int
    """Positions that a query attends to; 0 for all."""
    softcap: float
    """Bound of the scores; 0 for none."""
    scales: DType | None = None
    """Dtype of the scales of keys and values that are integers."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """A forward call (q, k, v, mask) or a backward call (g, q, k, v, mask, out, logsumexp).

    `names` and `specs` list the operands up to the mask.
    """

    names: tuple[str, ...]
    specs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    """Forward: the output. Backward: the saved output, then the gradients of q, k and v. Their features are contiguous."""
    shape: AttentionShape
    mask: Spec | None
    out_dtype: DType
    causal: bool
    scale: float
    precision: str
    """Precision of float32 products, see polyhal.set_float32_matmul_precision."""
    memory: tuple[Tensor | Workspace, ...] = ()
    """Memory of the operands; empty if it is the launch's arguments."""
    copies: int = 0
    """Workspaces with copies of operands; the workspaces of the kernels follow them."""
    mask_memory: Workspace | None = None
    """Memory of the mask, if it is not an argument of the launch."""
    cache: CacheLengths | None = None
    """Lengths of keys that are a cache; such a call has one result, without the logsumexp."""

    @property
    def dtype(self) -> DType:
        return self.specs[-1].dtype

    @property
    def forward(self) -> bool:
        return self.names == _FORWARD

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the two products of a forward pass."""
        return self.shape.count * self.shape.t * self.shape.s * (self.shape.d + self.shape.e)

    @property
    def real(self) -> str:
        """The C type of sums."""
        return real_type(self.specs[0].dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of a sum."""
        return 8 if self.real == "double" else 4

    @property
    def head_size(self) -> int:
        """Features of a key or of a value, whichever has more."""
        return max(self.shape.d, self.shape.e)

    @property
    def first_workspace(self) -> int:
        """Index of the first workspace in the argument list of a launch."""
        if not self.forward:
            return 10 + self.copies
        return self.out + (1 if self.cache else 2) + self.copies

    @property
    def out(self) -> int:
        """Index of the first output; in a forward call the logsumexp is the next one."""
        scales = 2 if self.cache is not None and self.cache.scales else 0
        return len(self.names) + (1 if self.forward else 3) + scales

    def place(self, index: int) -> Tensor | Workspace:
        """Return the memory of an operand."""
        return self.memory[index] if self.memory else Tensor(index)

    def operand(self, name: str) -> tuple[Tensor | Workspace, Spec]:
        index = self.names.index(name)
        return self.place(index), self.specs[index]

    def operands(self) -> Args:
        """Return the memory of all operands and of the mask, by name."""
        memory: Args = {name: self.place(i) for i, name in enumerate(self.names)}
        if self.cache is not None:
            after = len(self.names)
            if self.cache.scales:
                memory |= {"key_scales": Tensor(after + 1), "value_scales": Tensor(after + 2)}
            return memory | {"lengths": Strided(Tensor(after), {"step": self.cache.spec.strides[0]})}
        return memory if self.mask is None else memory | {"mask": self.mask_memory or Tensor(len(self.names))}

    def outputs(self) -> Args:
        """Return the memory of the results of a forward call."""
        results: Args = {"out": Tensor(self.out)}
        return results if self.cache else results | {"lse": Tensor(self.out + 1)}

    def saved_forward_args(self) -> Args:
        """Return the arguments for the saved forward results among the inputs of a backward call."""
        return {"out": Tensor(_BACKWARD_OUT), "lse": Tensor(_BACKWARD_LOGSUMEXP)}

    def gradient(self, name: str) -> Tensor:
        """Return the memory of `dq`, `dk` or `dv`."""
        return Tensor(self.out + _RESULTS.index(name) - 1)

    def batch(self) -> Args:
        """Return the lengths of the last two of the three batch axes."""
        return {"batch1": self.shape.batch[1], "batch2": self.shape.batch[2]}

    def strides(self, name: str, parameter: str = "") -> Args:
        """Return the STRIDES of an operand, for a parameter with its name or `parameter`."""
        index = self.names.index(name)
        row, column = self.specs[index].strides[-2:]
        return stride_args(parameter or name, (*self.shape.batch_strides[index], row, column))

    def result_strides(self, name: str, parameter: str = "") -> Args:
        """Return the ROW_STRIDES of a result, for a parameter with its name or `parameter`."""
        index = _RESULTS.index(name)
        batch = self.shape.batch_strides[len(self.names) + index]
        return stride_args(parameter or name, (*batch, self.results[index].strides[-2]))

    def geometry(self) -> Args:
        """Return the members of AttentionGeometry, and `scale`."""
        s = self.shape
        args: Args = {"t": s.t, "s": s.s, "d": s.d, "e": s.e, **self.batch(), "scale": self.scale}
        for name in self.names:
            args |= self.strides(name)
        for name in _RESULTS[: len(self.results)]:
            args |= self.result_strides(name)
        if self.mask is not None:
            # Batch axes are already merged, so only the last two strides are broadcast here.
            last = self.mask.strides[-2:] if self.mask_memory else self.mask_strides()
            args |= stride_args("mask", (*s.batch_strides[-1], *last))
        if self.cache is not None:
            args |= {name: getattr(self.cache, name) for name in ("heads", "position_step", "window")}
            if self.cache.softcap:
                args["softcap"] = self.cache.softcap
        return args

    def mask_strides(self) -> tuple[int, ...]:
        """Return the strides of the mask along queries and keys, 0 where it is broadcast."""
        assert self.mask is not None
        return broadcast_strides(self.mask.shape[-2:], self.mask.strides[-2:], (self.shape.t, self.shape.s))

    def definitions(self, **more: str | int | bool) -> Definitions:
        common: Definitions = {
            "DTYPE": self.dtype.name,
            "REAL": self.real,
            "CAUSAL": self.causal,
            "MASK": mask_kind(self.mask),
        }
        if self.out_dtype is not self.dtype:
            common["OUT_DTYPE"] = self.out_dtype.name
        if self.cache is not None:
            common |= {"LENGTHS": 1, "WINDOW": self.cache.window > 0, "SOFTCAP": self.cache.softcap > 0}
            if self.cache.scales:
                common["SCALE_DTYPE"] = self.cache.scales.name
            if self.specs[0].dtype is not self.dtype:
                common["Q_DTYPE"] = self.specs[0].dtype.name
        if self.mask is not None:
            common["MASK_DTYPE"] = self.mask.dtype.name
        return common | more

    def with_shared_keys_as_rows(self) -> AttentionCall:
        """Return a forward call whose heads that share keys and values are further queries of one head, if strides permit."""
        s, out = self.shape, self.results[0]
        count = s.batch[2]
        q, k, v, *others = s.batch_strides
        if not self.forward or count == 1 or k[2] or v[2] or ((self.causal or self.cache) and s.t > 1):
            return self
        rows = [(q[2], self.specs[0].strides[-2]), (others[0][2], out.strides[-2])]
        mask = self.mask
        if mask is not None:
            mask_row, mask_column = self.mask_strides()
            rows.append((others[1][2], mask_row))
        if s.t > 1 and any(head != s.t * row for head, row in rows):
            return self
        steps = [head if s.t == 1 else row for head, row in rows]
        lead, length = s.batch[:2], s.t * count

        def placed(spec: Spec, batch: tuple[int, ...], shape: tuple[int, int], strides: tuple[int, int]) -> Spec:
            return spec._replace(shape=(*lead, *shape), strides=(*batch[:2], *strides))

        if mask is not None:
            mask = placed(mask, others[1], (length, s.s), (steps[2], mask_column))
        shape = replace(
            s, batch=(1, *lead), t=length, batch_strides=tuple((0, *strides[:2]) for strides in s.batch_strides)
        )
        queries = placed(self.specs[0], q, (length, s.d), (steps[0], self.specs[0].strides[-1]))
        result = placed(out, others[0], (length, s.e), (steps[1], out.strides[-1]))
        specs = (queries, *self.specs[1:])
        cache = self.cache and replace(self.cache, heads=self.cache.heads // count, position_step=0)
        return replace(self, specs=specs, results=(result,), shape=shape, mask=mask, causal=False, cache=cache)

    def aligned(self, elements: int = _VECTOR) -> bool:
        """Return whether the features of every operand are contiguous, in whole aligned vectors of `elements`."""
        return all(self.operand_aligned(i, elements) for i in range(len(self.names)))

    def operand_aligned(self, index: int, elements: int) -> bool:
        """Return whether the features of an operand are contiguous, in whole aligned vectors of `elements`."""
        return _aligned(self.specs[index], self.shape.batch_strides[index], elements)

    def results_aligned(self, elements: int = _VECTOR) -> bool:
        """Return whether the features of every result form whole aligned vectors of `elements`."""
        strides = self.shape.batch_strides[len(self.names) :]
        return all(_aligned(s, batch, elements) for s, batch in zip(self.results, strides, strict=False))


def stride_args(name: str, strides: Sequence[int]) -> Args:
    """Return the arguments for three batch strides, the row stride, and for operands the column stride."""
    axes = ("batch0", "batch1", "batch2", "row", "column")
    return {f"{name}_{axis}": stride for axis, stride in zip(axes, strides, strict=False)}


def _aligned(spec: Spec, batch_strides: tuple[int, ...], elements: int) -> bool:
    return (
        spec.aligned
        and spec.strides[-1] == 1
        and spec.shape[-1] % elements == 0
        and all(n % elements == 0 for n in (spec.strides[-2], *batch_strides))
    )


def padded_head_size(features: int) -> int:
    """Return the head size to compile for, from a short list, so that few programs are built."""
    return next((n for n in _BOUNDS if features <= n), features)


def forward_call(inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> AttentionCall | Declined:
    """Describe a call of `attention`, or decline it with the reason."""
    if not outputs[1].is_contiguous:
        return Declined("the logsumexp is not contiguous")
    return _call(_FORWARD, inputs[:3], inputs[3], outputs[:1], params)


def cached_call(inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> AttentionCall | Declined:
    """Describe a call of `cached_attention` or `quantized_cached_attention`, or decline it.

    Heads that share keys are an axis of their own.
    """
    q, keys, values, lengths, *scales = (x for x in inputs if isinstance(x, Spec))
    for numbers, of in zip(scales, (keys, values), strict=False):
        steps = tuple(n * of.shape[3] for n in numbers.strides[:3])
        if numbers.dtype is not scales[0].dtype or steps != of.strides[:3]:
            return Declined("scales that are not laid out like the rows of their integers")
    kept = keys.shape[1]
    q, out = (
        x._replace(
            shape=(x.shape[0], kept, x.shape[1] // kept, *x.shape[2:]),
            strides=(x.strides[0], x.strides[1] * (x.shape[1] // kept), *x.strides[1:]),
        )
        for x in (q, outputs[0])
    )
    shared = q.shape[2]
    keys, values = (
        x._replace(shape=(*x.shape[:2], shared, *x.shape[2:]), strides=(*x.strides[:2], 0, *x.strides[2:]))
        for x in (keys, values)
    )
    if keys.dtype is not values.dtype or (not scales and real_type(q.dtype) != real_type(keys.dtype)):
        return Declined(f"queries of {q.dtype.name}, keys of {keys.dtype.name}, values of {values.dtype.name}")
    if out.strides[-1] != 1 and out.shape[-1] > 1:
        return Declined("the features of the result are not contiguous")
    (t, d), (s, e) = q.shape[-2:], values.shape[-2:]
    shape = merge_batch_axes([q, keys, values, out], None, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    cache = CacheLengths(
        lengths, kept * shared, 1, params["window"] or 0, params["softcap"] or 0.0, scales[0].dtype if scales else None
    )
    return AttentionCall(
        _FORWARD,
        (q, keys, values),
        (out,),
        shape,
        None,
        out.dtype,
        False,
        params["scale"],
        params.get("precision", "highest"),
        cache=cache,
    )


def backward_call(inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> AttentionCall | Declined:
    """Describe a call of `attention_grad`, or decline it with the reason."""
    g, q, k, v, mask, out, logsumexp = inputs
    real = real_type(q.dtype) if q else "float"
    if not isinstance(logsumexp, Spec) or logsumexp.dtype.name != {"double": "float64"}.get(real, "float32"):
        return Declined("a logsumexp of an unexpected dtype")
    if not isinstance(out, Spec) or not logsumexp.is_contiguous:
        return Declined("the saved results are not contiguous")
    reason = refusal((g, out), None)
    if reason:
        return Declined(reason)
    return _call(_BACKWARD, (g, q, k, v), mask, (out, *outputs), params)


def _call(
    names: tuple[str, ...],
    operands: Inputs,
    mask: InputSpec | None,
    results: tuple[Spec, ...],
    params: Params,
) -> AttentionCall | Declined:
    reason = refusal(operands, mask)
    if reason:
        return Declined(reason)
    if any(r.strides[-1] != 1 and r.shape[-1] > 1 for r in results):
        return Declined("the features of a result are not contiguous")
    specs = [o for o in operands if isinstance(o, Spec)]
    q, _, v = specs[-3:]
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    mask_spec = mask if isinstance(mask, Spec) else None
    shape = merge_batch_axes([*specs, *results], mask_spec, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    return AttentionCall(
        names,
        tuple(specs),
        results,
        shape,
        mask_spec,
        results[0].dtype,
        bool(params["causal"]),
        float(params["scale"]),
        params.get("precision", "highest"),
    )
