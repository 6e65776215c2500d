"""`foreach_elementwise`: a group of pointwise ops on each of many tensors, which a backend can run in a few kernels.

Optimizers and graph passes make it of ops on tensors so small that a launch takes longer than the work. Steps are those of
`fused_elementwise`: values are numbered from 0, first the lists, then the shared values, then the results of the steps.
Values may also be summed over the elements of each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops.declare import (
    Decompose,
    Output,
    Params,
    PartOfCall,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
)
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep, fused_elementwise, reference_steps, values_of
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.schema import tensors
from polyhal.hal.ops.tensor_like import TensorLike


def rows(xs: Any, lists: int, count: int) -> Iterator[tuple[Any, ...]]:
    """For each position of the lists the inputs of the steps. `xs` holds list by list, then the shared values."""
    for i in range(count):
        yield (*xs[i : lists * count : count], *xs[lists * count :])


ListAccess = Literal["elements", "single", "number", "rows", "columns", "matrices"]


def list_access(xs: Specs, lists: int, count: int) -> tuple[ListAccess, ...]:
    """Return how the elements of each list correspond to the elements of the first list.

    A list has tensors of equal shapes; a tensor without axes, or a Python number, for each tensor; or one for each row, column
    or matrix of its last two axes.
    """
    return tuple(_access(xs[:count], xs[k * count : (k + 1) * count]) for k in range(lists))


def _access(first: Specs, others: Specs) -> ListAccess:
    if all(isinstance(y, ScalarSpec) for y in others):
        return "number"
    pairs = [(x.shape, y.shape) for x, y in zip(tensors(first), tensors(others), strict=False)]
    if any(x for x, _ in pairs) and not any(y for _, y in pairs):
        return "single"
    if all(x == y for x, y in pairs) or any(len(x) < 2 for x, _ in pairs):
        return "elements"
    kinds: dict[ListAccess, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
        "rows": lambda x: (*x[:-1], 1),
        "columns": lambda x: (*x[:-2], 1, x[-1]),
        "matrices": lambda x: (*x[:-2], 1, 1),
    }
    return next((kind for kind, shape in kinds.items() if all(y == shape(x) for x, y in pairs)), "elements")


def filled_rows(specs: Specs, lists: int, count: int) -> tuple[list[int], tuple[int, ...]]:
    """Return the positions of the lists whose tensors have elements, and the inputs there with all that is shared."""
    filled = [i for i in range(count) if isinstance(s := specs[i], Spec) and s.size]
    return filled, (*(k * count + i for k in range(lists) for i in filled), *range(lists * count, len(specs)))


def _without_empty(specs: Specs, params: Params) -> PartOfCall | None:
    count = params["count"]
    if sums_of(params):
        return None  # vectors of sums have an element for each tensor
    filled, inputs = filled_rows(specs, params["lists"], count)
    outputs = tuple(r * count + i for r in range(len(params["results"])) for i in filled)
    return PartOfCall(inputs, outputs, {**params, "count": len(filled)})


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    lists, count, results = params["lists"], params["count"], params["results"]
    if lists < 1 or count < 1 or not (results or sums_of(params)) or len(specs) < lists * count:
        raise ValueError(f"{len(specs)} inputs for {lists} lists of {count}, and results {results}")
    if any(s.shape != () for s in specs[lists * count :] if isinstance(s, Spec)):
        raise ValueError("what all tensors share are numbers and tensors without axes")
    columns: list[list[Output]] = []
    access = list_access(specs, lists, count)
    if "elements" not in access:
        raise ValueError(f"lists of {access}; expected a list of tensors with elements")
    for row in rows(specs, lists, count):
        first, *others = [s for k, s in enumerate(row[:lists]) if access[k] == "elements"]
        kinds = [None if s is None else (s.dtype, isinstance(s, Spec)) for s in row]
        if not isinstance(first, Spec) or any(s is None or s.shape != first.shape for s in others):
            raise ValueError(f"tensors {row[:lists]} at one position; expected one shape")
        if not columns:
            values, expected = values_of(row, params["steps"]), kinds
            found = [values[r].dtype for r in results]
            vectors = [(sum_dtype(values[r].dtype), (count,)) for r in sums_of(params)]
            of_elements = (*results, *sums_of(params))
            if any(values[r].shape != first.shape for r in of_elements):
                raise ValueError(f"results {of_elements} do not depend on the elements of the tensors")
        elif kinds != expected:
            raise ValueError(f"dtypes {kinds} at one position and {expected} at another")
        columns.append([(dtype, first.shape) for dtype in found])
    return [*(column[r] for r in range(len(results)) for column in columns), *vectors]


def sums_of(params: Params) -> tuple[int, ...]:
    """Return the summed values. A call that was recorded before the parameter existed has none."""
    return tuple(params.get("sums", ()))


def sum_dtype(dtype: DType) -> DType:
    """Return the dtype of the sum of values."""
    return dtype if dtype is dtypes.float64 else dtypes.float32


def _foreach_elementwise(
    *xs: Any, lists: int = 1, count: int = 1, steps: Any = (), results: tuple[int, ...] = (), sums: tuple[int, ...] = ()
) -> Any:
    """The values `results` of pointwise `steps` on the tensors at each position of the lists; result by result.

    Then a vector for each of `sums`: the sum of that value over the elements of each tensor.
    """
    found = [reference_steps(row, steps) for row in rows(xs, lists, count)]
    vectors = (np.array([np.sum(values[r], dtype=np.float64) for values in found]) for r in sums)
    return (*(values[r] for r in results for values in found), *vectors)


def _decomposed(
    *xs: Any, lists: int, count: int, steps: Any, results: tuple[int, ...], sums: tuple[int, ...] = ()
) -> Any:
    found = [fused_elementwise([*row], steps, (*results, *sums)) for row in rows(xs, lists, count)]
    vectors = [concat([_sum(values[r]) for values in found], 0) for r in range(len(results), len(results) + len(sums))]
    return (*(values[r] for r in range(len(results)) for values in found), *vectors)


def _sum(x: TensorLike) -> Any:
    return reshape(sum_(in_dtype(x, sum_dtype(x.dtype))), (1,))


_LERP: tuple[GroupStep, ...] = (("subtract", (1, 0), ()), ("multiply", (3, 2), ()), ("add", (0, 4), ()))
_SCALED: tuple[GroupStep, ...] = (("multiply", (0, 1), ()), ("add", (3, 2), ()))
_OUTER: tuple[GroupStep, ...] = (("multiply", (1, 2), ()), ("divide", (4, 3), ()), ("multiply", (0, 5), ()))
_HALF: tuple[GroupStep, ...] = (("multiply", (0, 1), ()),)
_CAST: tuple[GroupStep, ...] = (("cast", (0,), (dtypes.float32,)),)
_ROOT: tuple[GroupStep, ...] = (
    ("sqrt", (0,), ()),
    ("divide", (3, 1), ()),
    ("leaky_relu", (4,), (0.1,)),
    ("add", (5, 2), ()),
)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def draw(shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        return [rng.uniform(0.1, 2, s) for s in shapes]

    def group(lists: int, count: int, steps: Any, *results: int) -> dict[str, Any]:
        return {"lists": lists, "count": count, "steps": steps, "results": results}

    few: list[tuple[int, ...]] = [(7,), (3, 5), (), (33, 65)]
    matrices: list[tuple[int, ...]] = [(3, 5), (2, 4, 1), (33, 65)]
    parts = (
        [(*s[:-1], 1) for s in matrices] + [(*s[:-2], 1, s[-1]) for s in matrices] + [(*s[:-2], 1, 1) for s in matrices]
    )
    many = [(3 * i + 1,) for i in range(27)]
    special = [np.array([np.inf, -np.inf, np.nan, -0.0]), np.array(np.nan)]
    return [
        Sample((*draw(few), *draw(few), np.array(0.3)), group(2, 4, _LERP, 5, 3), differentiable=False),
        Sample((*draw([(0, 2), (5,)]), 0.3), group(1, 2, (("multiply", (0, 1), ()),), 2), differentiable=False),
        Sample(tuple(draw(many)), group(1, 27, _CAST, 1), differentiable=False),
        Sample((*draw(many[:3]), np.array(0.7), 0.5), group(1, 3, _ROOT, 6), differentiable=False),
        Sample((*draw(few), *draw([()] * 4), *draw(few)), group(3, 4, _SCALED, 4, 3), differentiable=False),
        Sample((*special, 2.0), group(1, 2, (("multiply", (0, 1), ()),), 2), special=True),
        Sample((*draw(few), 0.5, 1.5, -2.0, 0.25, *draw(few)), group(3, 4, _SCALED, 4, 3), differentiable=False),
        Sample(
            (*draw(few), *draw(few), np.array(0.3)), {**group(2, 4, _LERP, 5), "sums": (4, 0)}, differentiable=False
        ),
        Sample((*draw(matrices), *draw(parts)), group(4, 3, _OUTER, 6), differentiable=False),
        Sample((*draw([(), (0, 2), (5,)]), 0.3), {**group(1, 3, _HALF, 2), "sums": (2,)}, differentiable=False),
    ]


def _terms(specs: Specs, params: Params) -> int:
    """The number of elements of the largest sum."""
    return max((s.size for s in tensors(specs)), default=0) if sums_of(params) else 0


def _flops(inputs: Specs, outputs: Sequence[Spec], params: Params) -> int:
    return len(params["steps"]) * sum(s.size for s in inputs[: params["count"]] if isinstance(s, Spec))


foreach_elementwise = declare(
    _foreach_elementwise,
    name="foreach_elementwise",
    family="optimizer",
    variadic_outputs=True,
    infer=_infer,
    lowering=Decompose(_decomposed),
    traits=Trait.INPLACE,
    public=False,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, floor=1.0, terms=_terms),
    flops=_flops,
    without_empty=_without_empty,
)
