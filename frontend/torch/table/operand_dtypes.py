"""Dtypes that PyTorch requires of the operands of an op, which Polyhal's functions would promote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import message
from polyhal.torch.table.operands import mixed

EQUAL: dict[str, str] = {
    "_cdist_forward": "x1 x2",
    "_grouped_mm": "self mat2",
    "_linalg_solve_ex": "A B",
    "_prelu_kernel": "self weight",
    "_scaled_dot_product_fused_attention_overrideable": "query key value",
    "addbmm": "self batch1 batch2",
    "addmm": "self mat1 mat2",
    "addmv": "self mat vec",
    "baddbmm": "self batch1 batch2",
    "binary_cross_entropy": "self target weight",
    "bmm": "self mat2",
    "convolution": "input weight bias",
    "convolution_overrideable": "input weight bias",
    "dot": "self tensor",
    "fractional_max_pool2d": "self random_samples",
    "fractional_max_pool3d": "self random_samples",
    "grid_sampler_2d": "input grid",
    "grid_sampler_3d": "input grid",
    "heaviside": "self values",
    "histogram": "self bins",
    "huber_loss_backward": "self target",
    "index_add": "self source",
    "index_copy": "self source",
    "index_put": "self values",
    "_index_put_impl": "self values",
    "index_reduce": "self source",
    "lerp": "self end",
    "linalg_cross": "self other",
    "linalg_householder_product": "input tau",
    "linalg_ldl_solve": "LD B",
    "linalg_lstsq": "self b",
    "linalg_lu_solve": "LU B",
    "linear": "input weight bias",
    "masked_scatter": "self source",
    "mm": "self mat2",
    "mv": "self vec",
    "nll_loss2d_forward": "self weight",
    "nll_loss_forward": "self weight",
    "ormqr": "self input2 input3",
    "put": "self source",
    "rrelu_with_noise": "self noise",
    "scatter": "self src",
    "scatter_add": "self src",
    "scatter_reduce": "self src",
    "vdot": "self other",
}
"""Arguments of one dtype, by op; in-place forms and all overloads count as the op."""

NORMALIZED: dict[str, str] = {
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), "input weight bias"),
    **dict.fromkeys(
        (
            "_batch_norm_with_update",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "native_batch_norm",
        ),
        "input weight bias running_mean running_var",
    ),
}
"""Arguments of one dtype of normalizations, which take parameters in float32 for an input in half precision, too."""

_LONG = (dtypes.int64,)
_INTEGERS = (dtypes.int64, dtypes.int32)
_LABELS = (dtypes.int64, dtypes.uint8)
_MASK = (dtypes.bool_,)
KINDS: dict[str, dict[str, tuple[DType, ...]]] = {
    **{
        name: {"index": _INTEGERS}
        for name in ("gather", "index_add", "index_reduce", "index_select", "scatter", "scatter_add", "scatter_reduce")
    },
    **{name: {"index": _LONG} for name in ("index_copy", "index_fill", "put", "take")},
    "embedding": {"indices": _INTEGERS},
    "masked_fill": {"mask": _MASK},
    "multi_margin_loss": {"target": _LONG},
    "multilabel_margin_loss_forward": {"target": _LONG},
    "linalg_lu_solve": {"pivots": (dtypes.int32,)},
    "lu_unpack": {"LU_pivots": (dtypes.int32,)},
    "nll_loss2d_forward": {"target": _LONG},
    "nll_loss_forward": {"target": _LABELS},
    "where": {"condition": (dtypes.bool_, dtypes.uint8)},
    **{name: {"indices": _LONG} for name in ("max_unpool2d", "max_unpool3d")},
}
"""Dtypes of an argument, by op."""

Check = Callable[[Sequence[Any]], None]


def check_of(op: Any) -> Check | None:
    """Return the function that raises RuntimeError for arguments of an overload with refused dtypes; None without a rule."""
    packet = op._schema.name.removeprefix("aten::").removesuffix("_")
    places = {a.name: i for i, a in enumerate(op._schema.arguments)}
    names = (EQUAL.get(packet) or NORMALIZED.get(packet, "")).split()
    equal = [(name, places[name]) for name in names if name in places]
    kinds = [(name, places[name], kind) for name, kind in KINDS.get(packet, {}).items() if name in places]
    takes_singles = packet in NORMALIZED
    if len(equal) < 2 and not kinds:
        return None

    def check(values: Sequence[Any]) -> None:
        count = len(values)
        if equal:
            first, place = equal[0]
            dtype = values[place].dtype
            for name, i in equal[1:]:
                if i < count and getattr(values[i], "dtype", dtype) is not dtype:
                    if takes_singles and dtype.itemsize == 2 and values[i].dtype is dtypes.float32:
                        continue
                    raise mixed(packet, **{first: values[place], name: values[i]})
        for name, i, allowed in kinds:
            if i < count and getattr(values[i], "dtype", allowed[0]) not in allowed:
                raise _kind_error(packet, name, values[i].dtype, allowed)

    if len(kinds) == 1 and len(equal) in (0, 2):
        return _usual_compared([place for _, place in equal], kinds[0][1], kinds[0][2][0], check)
    return check if kinds or not equal else _first_compared(equal[0][1], equal[-1][1], len(equal) == 2, check)


def _usual_compared(pair: Sequence[int], place: int, usual: DType, check: Check) -> Check:
    """Return a check that compares operands with their usual dtypes first, which costs the host least."""
    i, j = pair or (0, 0)
    count = max(i, j, place) + 1

    def compare_kind(values: Sequence[Any]) -> None:
        if len(values) < count or getattr(values[place], "dtype", None) is not usual:
            check(values)

    def compare_pair_and_kind(values: Sequence[Any]) -> None:
        if (
            len(values) < count
            or getattr(values[place], "dtype", None) is not usual
            or (values[j] is not None and values[i].dtype is not getattr(values[j], "dtype", None))
        ):
            check(values)

    return compare_pair_and_kind if pair else compare_kind


def _first_compared(i: int, j: int, is_pair: bool, check: Check) -> Check:
    """Return a check that compares the usual operands first, which costs the host least."""

    def compare_two(values: Sequence[Any]) -> None:
        if values[i].dtype is not getattr(values[j], "dtype", None):
            check(values)

    def compare_neighbours(values: Sequence[Any]) -> None:
        if len(values) != 3 or not (
            values[0].dtype is getattr(values[1], "dtype", None) is getattr(values[2], "dtype", None)
        ):
            check(values)

    return compare_two if is_pair else compare_neighbours


def _kind_error(op: str, name: str, found: DType, allowed: Sequence[DType]) -> Exception:
    expected = " or ".join(d.name.rstrip("_") for d in allowed)
    kind = IndexError if op == "index_fill" and not found.is_integral else RuntimeError
    fix = f"cast it with {name}.to(torch.{allowed[0].name.rstrip('_')})"
    return kind(message(op, f"{name} is {found.name}", expected=expected, fix=fix))
