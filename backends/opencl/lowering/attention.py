"""Attention and its gradient, computed tile by tile so that the scores are never in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.attentions import Shape, arrange, mask_kind, refusal
from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, ScalarType, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import own_exp, real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_MAX_FEATURES = 256
_PACK_ROWS = 32
_TILES_EACH = 8
_GPU_GROUP = 256
_GPU_SIDE = 16
_GPU_TILE = 64
_GPU_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and vectors of a register tile of scores, and vectors of a tile of features."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        return self.vectors * self.width

    def panel(self, features: int) -> int:
        """Vectors per panel of features: fewer where one panel of fewer holds them all."""
        vectors = self.vectors
        while vectors > 1 and features <= vectors // 2 * self.width:
            vectors //= 2
        return vectors


def _tile(runtime: Runtime, real: str) -> Tile:
    width = runtime.features.vector_width
    wide = width >= 16
    return Tile(6 if wide else 3, 4, width // 2 if real == "double" else width)


def _bound(features: int, panel: int) -> int:
    """The compiled bound for a length: few distinct values, so that few programs are built."""
    return max(64, round_up(1 << (features - 1).bit_length(), panel))


def _numbers(kind: ScalarType, *values: int) -> list[Parameter]:
    return [Constant(v, kind) for v in values]


def _pack(
    runtime: Runtime, dtype: DType, real: str, columns: int, source: int, target: int, shape: Shape, operand: int,
    k: int, n: int, row: int, column: int,
) -> Launch:  # fmt: skip
    """Pack argument `source` as (k, n) matrices, with these strides, into panels of `columns`, in workspace `target`."""
    return runtime.launch(
        "attention_pack", "matmul_pack", {"DTYPE": dtype.name, "REAL": real, "NR": columns, "ROWS": _PACK_ROWS},
        [
            Tensor(source), Workspace(target), *_numbers("uint", n, k), *_numbers("long", row, column),
            *_numbers("uint", *shape.batch[1:]), *_numbers("long", *shape.steps[operand]),
        ],
        (ceil_div(k, _PACK_ROWS), ceil_div(n, columns), shape.count), (1, 1, 1),
    )  # fmt: skip


def _attention(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    q, k, v, mask = inputs
    reason = refusal((q, k, v), mask)
    if reason:
        return Declined(reason)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    if max(d, e) > _MAX_FEATURES:
        return Declined(f"heads of {max(d, e)} features; the kernel takes {_MAX_FEATURES}")
    shape = arrange((q, k, v), mask if isinstance(mask, Spec) else None, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    real = real_type(q.dtype)
    if not runtime.features.cpu:
        return _tiles(runtime, shape, q, k, v, mask, outputs[0], params)
    tile = _tile(runtime, real)
    value_vectors = tile.panel(e)
    panel = value_vectors * tile.width
    workspace = 6
    packs = [
        _pack(runtime, k.dtype, real, tile.columns, 1, workspace, shape, 1, d, s, k.strides[-1], k.strides[-2]),
        _pack(runtime, v.dtype, real, panel, 2, workspace + 1, shape, 2, s, e, v.strides[-2], v.strides[-1]),
    ]
    item = 8 if real == "double" else 4
    sizes = (
        shape.count * round_up(s, tile.columns) * d * item,
        shape.count * round_up(e, panel) * s * item,
    )
    definitions: dict[str, str | int | bool] = {
        "DTYPE": q.dtype.name, "OUT_DTYPE": outputs[0].dtype.name, "REAL": real, "WIDTH": tile.width, "MR": tile.rows,
        "VECTORS": tile.vectors, "VALUE_VECTORS": value_vectors, "MAX_FEATURES": _bound(d, 1), "MAX_VALUES": _bound(e, panel),
        "CAUSAL": bool(params["causal"]), "MASK": mask_kind(mask), "POLYNOMIAL_EXP": own_exp(runtime, q.dtype),
    }  # fmt: skip
    masked: list[Parameter] = []
    mask_steps: list[Parameter] = []
    if isinstance(mask, Spec):
        definitions["MASK_DTYPE"] = mask.dtype.name
        masked = [Tensor(3)]
        spread = broadcast_strides(mask.shape, mask.strides, (*q.shape[:-2], t, s))
        mask_steps = _numbers("long", *shape.steps[3], *spread[-2:])
    each = _rows_each(runtime, shape.count, t, tile.rows)
    parameters: list[Parameter] = [
        Tensor(0), Workspace(workspace), Workspace(workspace + 1), *masked, Tensor(4), Tensor(5), *_numbers("uint", t, s, d, e),
        Constant(each, "uint"), Constant(params["scale"], "double" if real == "double" else "float"),
        *_numbers("uint", *shape.batch[1:]), *_numbers("long", *shape.steps[0], *q.strides[-2:]), *mask_steps,
    ]  # fmt: skip
    attend = runtime.launch("attention", "attention", definitions, parameters, (ceil_div(t, each), shape.count), (1, 1))
    return LaunchSequence("attention", (*packs, attend), sizes)


def _tiles(
    runtime: Runtime,
    shape: Shape,
    q: Spec,
    k: Spec,
    v: Spec,
    mask: InputSpec | None,
    out: Spec,
    params: Mapping[str, Any],
) -> Launch | Declined:
    """The GPU's kernel, which stages tiles in local memory."""
    real = real_type(q.dtype)
    item = 8 if real == "double" else 4
    quads = ceil_div(shape.e, _GPU_TILE)
    if quads == 3:  # few distinct values, so that few programs are built
        quads = 4
    pitch = _GPU_TILE + 4
    rows = _GPU_DEPTH * (2 * pitch if quads == 1 else pitch + quads * _GPU_TILE + 4)
    local = (rows + _GPU_TILE * pitch + _GPU_TILE * (_GPU_SIDE + 4)) * item
    limits = runtime.capabilities.limits
    if local > limits.local_memory or limits.max_group_size < _GPU_GROUP:
        return Declined(f"the kernel needs {local} bytes of local memory and groups of {_GPU_GROUP}")
    definitions: dict[str, str | int | bool] = {
        "DTYPE": q.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real, "VALUE_QUADS": quads,
        "CAUSAL": bool(params["causal"]), "MASK": mask_kind(mask),
    }  # fmt: skip
    masked: list[Parameter] = []
    mask_steps: list[Parameter] = []
    if isinstance(mask, Spec):
        definitions["MASK_DTYPE"] = mask.dtype.name
        masked = [Tensor(3)]
        spread = broadcast_strides(mask.shape, mask.strides, (*q.shape[:-2], shape.t, shape.s))
        mask_steps = _numbers("long", *shape.steps[3], *spread[-2:])
    strides = [n for steps, spec in zip(shape.steps, (q, k, v), strict=False) for n in (*steps, *spec.strides[-2:])]
    parameters: list[Parameter] = [
        Tensor(0), Tensor(1), Tensor(2), *masked, Tensor(4), Tensor(5),
        *_numbers("uint", shape.t, shape.s, shape.d, shape.e),
        Constant(params["scale"], "double" if real == "double" else "float"), *_numbers("uint", *shape.batch[1:]),
        *_numbers("long", *strides), *mask_steps,
    ]  # fmt: skip
    items = (ceil_div(shape.t, _GPU_TILE) * _GPU_GROUP, shape.count)
    return runtime.launch("attention", "attention_tiles", definitions, parameters, items, (_GPU_GROUP, 1))


def _rows_each(runtime: Runtime, count: int, rows: int, tile: int) -> int:
    """Rows per work-item, in whole tiles: several, but no fewer items than keep every core busy."""
    wanted = 4 * runtime.features.compute_units
    each = _TILES_EACH
    while each > 1 and ceil_div(rows, each * tile) * count < wanted:
        each //= 2
    return each * tile


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    g, q, k, v, mask, out, lse = inputs
    if not runtime.features.cpu:
        return Declined("the kernel of the gradient is written for CPUs")
    reason = refusal((q, k, v, g, out), mask)
    if reason:
        return Declined(reason)
    assert isinstance(g, Spec)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    assert isinstance(out, Spec)
    real = real_type(q.dtype)
    if not isinstance(lse, Spec) or lse.dtype.name != ("float64" if real == "double" else "float32"):
        return Declined("a logsumexp of an unexpected dtype")
    if not out.is_contiguous or not lse.is_contiguous:
        return Declined("the saved results are not contiguous")
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    if max(d, e) > _MAX_FEATURES:
        return Declined(f"heads of {max(d, e)} features; the kernel takes {_MAX_FEATURES}")
    shape = arrange((g, q, k, v), mask if isinstance(mask, Spec) else None, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    tile = _tile(runtime, real)
    key_vectors, value_vectors = tile.panel(d), tile.panel(e)
    key_panel, value_panel = key_vectors * tile.width, value_vectors * tile.width
    item = 8 if real == "double" else 4
    # Arguments: 7 inputs, 3 outputs, then the workspaces.
    base = 10
    steps: list[Launch] = []
    sizes: list[int] = []

    def pack(spec: Spec, place: int, operand: int, columns: int, turned: bool) -> Workspace:
        """Pack an input by rows, or turned so that its rows become columns."""
        length, features = spec.shape[-2:]
        rows, across = (features, length) if turned else (length, features)
        row, column = (spec.strides[-1], spec.strides[-2]) if turned else (spec.strides[-2], spec.strides[-1])
        target = base + len(sizes)
        steps.append(
            _pack(runtime, spec.dtype, real, columns, place, target, shape, operand, rows, across, row, column)
        )
        sizes.append(shape.count * round_up(across, columns) * rows * item)
        return Workspace(target)

    keys_turned = pack(k, 2, 2, tile.columns, True)
    values_turned = pack(v, 3, 3, tile.columns, True)
    keys = pack(k, 2, 2, key_panel, False)
    queries_turned = pack(q, 1, 1, tile.columns, True)
    slopes_turned = pack(g, 0, 0, tile.columns, True)
    queries = pack(q, 1, 1, key_panel, False)
    slopes = pack(g, 0, 0, value_panel, False)
    delta = Workspace(base + len(sizes))
    sizes.append(shape.count * t * item)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": q.dtype.name, "GRADIENT_DTYPE": g.dtype.name, "REAL": real, "WIDTH": tile.width, "MR": tile.rows,
        "VECTORS": tile.vectors, "KEY_VECTORS": key_vectors, "VALUE_VECTORS": value_vectors,
        "MAX_FEATURES": _bound(d, key_panel), "MAX_VALUES": _bound(e, value_panel), "CAUSAL": bool(params["causal"]),
        "MASK": mask_kind(mask), "POLYNOMIAL_EXP": own_exp(runtime, q.dtype),
    }  # fmt: skip
    masked: list[Parameter] = []
    mask_steps: list[Parameter] = []
    if isinstance(mask, Spec):
        definitions["MASK_DTYPE"] = mask.dtype.name
        masked = [Tensor(4)]
        spread = broadcast_strides(mask.shape, mask.strides, (*q.shape[:-2], t, s))
        mask_steps = _numbers("long", *shape.steps[4], *spread[-2:])
    batches = _numbers("uint", *shape.batch[1:])
    by_queries = definitions | {"ROWS_ARE_KEYS": False}
    steps.append(
        runtime.launch(
            "attention_delta", "attention_grad", by_queries,
            [
                Tensor(0), Tensor(5), delta, *_numbers("uint", shape.count * t, t, e), *batches,
                *_numbers("long", *shape.steps[0], *g.strides[-2:]),
            ],
            (shape.count * t,), (runtime.features.group_size,), kernel="attention_delta",
        )
    )  # fmt: skip
    scale = Constant(params["scale"], "double" if real == "double" else "float")

    def gradient(
        defined: Mapping[str, Any], first: tuple[int, Spec, int], second: tuple[int, Spec, int], packed: Sequence[Parameter],
        results: Sequence[Parameter], rows: int,
    ) -> None:  # fmt: skip
        each = _rows_each(runtime, shape.count, rows, tile.rows)
        strides = [
            Constant(n, "long") for _, spec, operand in (first, second) for n in (*shape.steps[operand], *spec.strides[-2:])
        ]  # fmt: skip
        parameters: list[Parameter] = [
            Tensor(first[0]), Tensor(second[0]), *packed, *masked, Tensor(6), delta, *results, *_numbers("uint", t, s, d, e),
            Constant(each, "uint"), scale, *batches, *strides, *mask_steps,
        ]  # fmt: skip
        items = (ceil_div(rows, each), shape.count)
        steps.append(runtime.launch("attention_grad", "attention_grad", dict(defined), parameters, items, (1, 1)))

    gradient(by_queries, (1, q, 1), (0, g, 0), (keys_turned, values_turned, keys), (Tensor(7),), t)
    gradient(
        definitions | {"ROWS_ARE_KEYS": True}, (2, k, 2), (3, v, 3), (queries_turned, slopes_turned, queries, slopes),
        (Tensor(8), Tensor(9)), s,
    )  # fmt: skip
    return LaunchSequence("attention_grad", steps, tuple(sizes))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"attention": _attention, "attention_grad": _attention_grad}
