"""Ops over lists of tensors that run in a few launches. PyTorch runs the others tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.nn.utils.gradients import CHUNK
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import OPS, F, cast, is_tensor

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor


def _parts(*lists: Sequence[Any]) -> Iterator[tuple[list[int], bool]]:
    """Iterate over groups of tensors of one dtype that fit in a launch: their indices, and whether they are floats."""
    groups: dict[Any, list[int]] = {}
    for i, row in enumerate(zip(*lists, strict=True)):
        groups.setdefault(tuple(x.dtype for x in row), []).append(i)
    for kinds, members in groups.items():
        for start in range(0, len(members), CHUNK):
            yield members[start : start + CHUNK], all(d.is_floating_point for d in kinds)


def _factor(value: Tensor | float, like: Tensor) -> Any:
    """Convert a number or a tensor of one element to a 0-d factor on the device."""
    if is_tensor(value):
        return F["reshape"](value, ())
    kind = dtypes.float64 if like.dtype is dtypes.float64 else dtypes.float32
    return F["broadcast_scalar"](value, (), kind, device=like.device)  # live in a recorded step


@aten("_foreach_mul_.Scalar", "_foreach_mul_.Tensor")
def scale_in_place(xs: Sequence[Tensor], value: Tensor | float) -> None:
    for members, are_floats in _parts(xs):
        part = [xs[i] for i in members]
        if are_floats:
            dispatch.apply_into(OPS["scale_all"], (*part, _factor(value, part[0])), (), tuple(part))
            continue
        for x in part:
            dispatch.thread.executor.overwrite(x, cast(x * value, x.dtype))


@aten("_foreach_copy_")
def copy_in_place(xs: Sequence[Tensor], sources: Sequence[Tensor], non_blocking: bool = False) -> None:
    for members, _ in _parts(xs, sources):
        targets, values = [xs[i] for i in members], [sources[i] for i in members]
        if all(t.dtype is v.dtype and t.shape == v.shape for t, v in zip(targets, values, strict=True)):
            dispatch.apply_into(OPS["copies"], tuple(values), (), tuple(targets))
            continue
        for target, value in zip(targets, values, strict=True):
            dispatch.thread.executor.overwrite(target, F["broadcast_to"](value, target.shape))


@aten("_foreach_norm.Scalar")
def norms(xs: Sequence[Tensor], ord: float = 2, dtype: DType | None = None) -> list[Any]:  # noqa: A002
    """Return 0-d norms. Norms of one dtype are views of one vector, in order, which clipping concatenates without a copy."""
    kinds = [dtype or x.dtype for x in xs]
    if ord != 2 or any(d is dtypes.float64 or not d.is_floating_point for d in (*kinds, *(x.dtype for x in xs))):
        return [
            cast(F["vector_norm"](cast(x, kind), None, False, float(ord)), kind)
            for x, kind in zip(xs, kinds, strict=True)
        ]
    found: dict[int, Any] = {}
    for kind in dict.fromkeys(kinds):
        members = [i for i, k in enumerate(kinds) if k is kind]
        vector = cast(OPS["norms"].call([xs[i] for i in members]), kind)
        found |= {i: F["reshape"](vector[at : at + 1], ()) for at, i in enumerate(members)}
    return [found[i] for i in range(len(xs))]


@aten("_foreach_zero_")
def zero_in_place(xs: Sequence[Tensor]) -> None:
    for x in xs:
        dispatch.thread.executor.overwrite(x, 0)
