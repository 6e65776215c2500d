"""`vmap`: a function of one element, called for a whole batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

from polyhal.func.batched import Level, batched, is_batched
from polyhal.func.batching import BatchingExecutor, Randomness
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import executing
from polyhal.hal.errors import message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level
from polyhal.steps.tree import map_tree
from polyhal.tensor import Tensor

InDims = int | None | tuple[Any, ...] | list[Any] | dict[str, Any]


@top_level
def vmap(
    func: Callable[..., Any],
    in_dims: InDims = 0,
    out_dims: int | tuple[int | None, ...] | None = 0,
    randomness: Randomness = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that maps `func` over an axis of its arguments, in a few ops for the whole batch.

    `in_dims` names the batch axis of each positional argument, also in nested lists, tuples and dictionaries; None: the
    argument is the same for all. Tensors among keyword arguments are batched along axis 0. `out_dims` says where results get
    the axis. `chunk_size` limits how many elements are computed at once. Ops without a batching rule run through their
    decomposition. Raises ValueError for axes that do not fit.

    >>> derivative = polyhal.func.grad(lambda x: x**3)
    >>> polyhal.vmap(derivative)(polyhal.tensor([1.0, 2.0])).tolist()
    [3.0, 12.0]
    """
    if randomness not in ("error", "same", "different"):
        problem = f"randomness is {randomness!r}"
        raise ValueError(message("vmap", problem, expected="'error', 'same' or 'different'"))

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = (_axes_of(args, in_dims), map_tree(kwargs, lambda x: 0 if isinstance(x, Tensor) else None))
        size = _size((args, kwargs), axes)
        if chunk_size is None or size <= chunk_size:
            return _call(func, args, kwargs, axes, size, out_dims, randomness)
        parts = []
        for start in range(0, size, chunk_size):
            stop = min(start + chunk_size, size)
            part_args, part_kwargs = _zip_trees((args, kwargs), axes, partial(_part, start, stop))
            parts.append(_call(func, part_args, part_kwargs, axes, stop - start, out_dims, randomness))
        return _joined(parts, out_dims)

    return mapped


def _call(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    axes: Any,
    size: int,
    out_dims: Any,
    randomness: Randomness,
) -> Any:
    level = Level(size)
    args, kwargs = _zip_trees((args, kwargs), axes, lambda x, a: x if a is None else batched(_front(x, a), level))
    try:
        with executing(BatchingExecutor(dispatch.thread.executor, level, randomness)):
            results = func(*args, **kwargs)
        return _zip_trees(results, _spread(out_dims, results, 1), lambda x, a: _unwrapped(x, a, level))
    finally:
        level.active = False


def _front(x: Tensor, axis: int) -> Tensor:
    result: Tensor = x if axis == 0 else FUNCTIONS["moveaxis"](x, axis, 0)
    return result


def _part(start: int, stop: int, x: Tensor, axis: int | None) -> Any:
    return x if axis is None else x[(slice(None),) * axis + (slice(start, stop),)]


def _joined(parts: Sequence[Tensor], out_dims: Any) -> Any:
    leaves = [list(_leaves(p)) for p in parts]
    axes = list(_leaves(_spread(out_dims, parts[0], 0)))
    joined = iter(
        column[0] if axis is None else FUNCTIONS["concat"](column, axis)
        for axis, column in zip(axes, map(list, zip(*leaves, strict=True)), strict=True)
    )
    return map_tree(parts[0], lambda _: next(joined))


def _unwrapped(x: Any, axis: int | None, level: Level) -> Any:
    """Return a result with the batch at `axis`."""
    if not isinstance(x, Tensor):
        if axis is None or not isinstance(x, (int, float, bool)):
            return x
        problem = f"the function returned {x!r}"
        raise TypeError(message("vmap", problem, expected="tensors", fix="return polyhal.tensor(...)"))
    if not is_batched(x, level):
        return x if axis is None else FUNCTIONS["moveaxis"](x[None].broadcast_to((level.size, *x.shape)), 0, axis)
    if axis is None:
        problem = "out_dims is None for a result that differs within the batch"
        raise ValueError(message("vmap", problem, expected="an axis"))
    return x.physical if axis == 0 else FUNCTIONS["moveaxis"](x.physical, 0, axis)  # type: ignore[attr-defined]


# --- axes of nested arguments ---------------------------------------------------------------------------------------


def _axes_of(args: tuple[Any, ...], in_dims: InDims) -> Any:
    """Return the batch axis of every leaf of `args`, not negative; None where there is none."""
    if not isinstance(in_dims, (tuple, list)):
        return tuple(_spread(in_dims, a) for a in args)
    if len(in_dims) != len(args):
        problem = f"in_dims has {len(in_dims)} entries for {len(args)} arguments"
        raise ValueError(message("vmap", problem, expected="one for each positional argument"))
    return tuple(_spread(d, a) for d, a in zip(in_dims, args, strict=True))


def _spread(axes: Any, value: Any, added: int = 0) -> Any:
    """`axes` with a number repeated for every leaf below it, and counted from the front; the batch may add an axis."""
    kind = type(value)
    if kind in (list, tuple):
        if isinstance(axes, (list, tuple)):
            if len(axes) != len(value):
                raise ValueError(message("vmap", f"{len(axes)} axes for {len(value)} values", expected="one for each"))
            return kind(_spread(a, v, added) for a, v in zip(axes, value, strict=True))
        return kind(_spread(axes, v, added) for v in value)
    if hasattr(value, "_fields"):
        return kind(*(_spread(axes, v, added) for v in value))
    if kind is dict:
        return {k: _spread(axes[k] if isinstance(axes, dict) else axes, v, added) for k, v in value.items()}
    if isinstance(value, Tensor) and value.dtype.is_complex:
        return (_spread(axes, value.real, added),) * 2
    if axes is None or not isinstance(value, Tensor):
        return None
    return axes if axes >= 0 else normalize_axis(axes, value.ndim + added)


def _size(value: Any, axes: Any) -> int:
    sizes = set()
    for x, axis in zip(_leaves(value), _leaves(axes), strict=True):
        if axis is not None:
            if axis >= x.ndim:
                raise ValueError(message("vmap", f"a tensor of shape {x.shape} has no axis {axis} to map over"))
            sizes.add(x.shape[axis])
    if len(sizes) != 1:
        problem = f"the mapped axes have lengths {sorted(sizes)}" if sizes else "no argument is mapped"
        raise ValueError(message("vmap", problem, expected="one length", fix="choose other in_dims"))
    return int(sizes.pop())


def _leaves(value: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_tree(value, found.append)
    return iter(found)


def _zip_trees(value: Any, axes: Any, function: Callable[[Any, Any], Any]) -> Any:
    """Apply `function` to every leaf and its axis."""
    remaining = _leaves(axes)
    return map_tree(value, lambda x: function(x, next(remaining)))
