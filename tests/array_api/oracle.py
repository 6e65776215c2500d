"""Functions of the Array API with strategies for their arguments, compared with array-api-strict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import hypothesis.extra.numpy as numpy_strategies
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import polyhal

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = (*INTEGERS, "float32", "float64")
FLOATS = ("float32", "float64", "complex64", "complex128")
NUMBERS = (*INTEGERS, *FLOATS)
ALL = ("bool", *NUMBERS)
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Case(NamedTuple):
    """One function: its name, below `linalg` or `fft` too, and a strategy for calls, given the dtypes of a device."""

    name: str
    calls: Callable[[Callable[..., Any]], st.SearchStrategy[Call]]


def _elements(dtype: str) -> st.SearchStrategy[Any]:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        return st.integers(-5 if kind == "i" else 0, 5)
    # Quarters: sums and products are exact, so that the order of additions does not matter.
    quarters = st.integers(-32, 32).map(lambda n: n / 4)
    return quarters if kind == "f" else st.builds(complex, quarters, quarters)


def arrays(dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
    """Arrays of one dtype with the shapes."""

    def of(dtype: str) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
        return st.tuples(*(numpy_strategies.arrays(dtype, s, elements=_elements(dtype)) for s in shapes))

    return st.sampled_from(dtypes).flatmap(of)


def _case(
    name: str, dtypes: tuple[str, ...], *shapes: tuple[int, ...], then: tuple[Any, ...] = (), **options: Any
) -> Case:
    """A case with arrays, then further arguments, and some of the keywords, whose lists contain the possible values."""

    def calls(stored: Callable[..., Any]) -> st.SearchStrategy[Call]:
        keywords = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in options.items()})
        operands = arrays(stored(dtypes), *shapes)
        if name in ("concat", "stack"):
            operands = operands.map(lambda xs: ([*xs],))
        return st.tuples(operands.map(lambda xs: (*xs, *then)), keywords)

    return Case(name, calls)


def _square(name: str, add: float, *then: Any, **options: Any) -> Case:
    """Symmetric or Hermitian matrices plus a multiple of the identity, from which they are positive definite."""

    def calls(stored: Callable[..., Any]) -> st.SearchStrategy[Call]:
        def symmetric(xs: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
            (x,) = xs
            return ((x + np.swapaxes(x, -2, -1).conj() + add * np.eye(3)).astype(x.dtype), *then)

        keywords = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in options.items()})
        return st.tuples(arrays(stored(FLOATS), (2, 3, 3)).map(symmetric), keywords)

    return Case(name, calls)


def cases() -> Iterator[Case]:
    """Yield every case."""
    reals = REALS[-2:]
    unary: dict[tuple[str, ...], str] = {
        FLOATS: "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh sqrt tan tanh",
        NUMBERS: "abs negative positive square isfinite isinf isnan round",
        REALS: "ceil floor trunc sign",
        FLOATS[2:]: "conj real imag",
        ("bool",): "logical_not",
        INTEGERS: "bitwise_invert",
    }
    for dtypes, names in unary.items():
        yield from (_case(name, dtypes, (2, 3)) for name in names.split())
    binary: dict[tuple[str, ...], str] = {
        NUMBERS: "add subtract multiply equal not_equal",
        REALS: "less less_equal greater greater_equal maximum minimum",
        reals: "atan2 hypot copysign nextafter logaddexp",
        ("bool",): "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor",
    }
    for dtypes, names in binary.items():
        yield from (_case(name, dtypes, (2, 1), (3,)) for name in names.split())
    for name in ("divide", "floor_divide", "remainder", "pow"):
        yield _case(name, FLOATS if name == "divide" else REALS, (2, 3), then=(3,))
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        yield _case(name, INTEGERS, (2, 3), then=(2,))
    axes, flags = [None, 0, -1, (0, 2)], [False, True]
    for name in ("sum", "prod"):
        yield _case(name, NUMBERS, (2, 3, 2), axis=axes, keepdims=flags)
    for name in ("max", "min"):
        yield _case(name, REALS, (2, 3, 2), axis=axes, keepdims=flags)
    yield _case("mean", FLOATS, (2, 3, 2), axis=axes, keepdims=flags)
    for name in ("std", "var"):
        yield _case(name, reals, (2, 3, 2), axis=axes, correction=[0, 1, 0.5], keepdims=flags)
    for name in ("all", "any", "count_nonzero"):
        yield _case(name, ALL, (2, 0, 2), axis=axes, keepdims=flags)
    for name in ("argmax", "argmin"):
        yield _case(name, REALS, (2, 3, 2), axis=[None, 1, -1], keepdims=flags)
    for name in ("sort", "argsort"):
        yield _case(name, REALS, (4, 5), axis=[0, -1], descending=flags)
    for name in ("cumulative_sum", "cumulative_prod"):
        yield _case(name, NUMBERS, (5,), axis=[0, None], include_initial=flags)
    yield _case("diff", NUMBERS, (3, 4), axis=[0, -1], n=[0, 1, 2])
    yield _case("flip", ALL, (3, 2), axis=[None, 0, (0, 1)])
    yield _case("roll", ALL, (3, 2), then=(1,), axis=[None, 0, -1])
    yield _case("repeat", ALL, (3, 2), then=(2,), axis=[None, 0, -1])
    yield _case("tile", ALL, (3, 2), then=((2, 1, 3),))
    yield _case("expand_dims", ALL, (3, 2), then=(-1,))
    yield _case("squeeze", ALL, (3, 1), then=(1,))
    yield _case("permute_dims", ALL, (3, 1, 2), then=((2, 0, 1),))
    yield _case("moveaxis", ALL, (3, 1, 2), then=(0, -1))
    yield _case("matrix_transpose", ALL, (3, 1, 2))
    yield _case("unstack", ALL, (3, 2), axis=[0, -1])
    yield _case("reshape", ALL, (3, 2), then=((2, -1),), copy=[None, True, False])
    yield _case("broadcast_to", ALL, (3, 1), then=((2, 3, 4),))
    yield _case("broadcast_arrays", ALL, (3, 1), (2,))
    yield _case("meshgrid", ALL, (3,), (2,), indexing=["xy", "ij"])
    yield _case("concat", ALL, (3, 2), (1, 2), axis=[0, None])
    yield _case("stack", ALL, (3, 2), (3, 2), axis=[0, -1])
    for name in ("tril", "triu"):
        yield _case(name, ALL, (2, 3, 3), k=[-1, 0, 2])
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        yield _case(name, ALL, (3, 4))
    yield _case("nonzero", ALL, (3, 4))
    yield _case("clip", REALS, (3, 4), then=(1, 3))
    yield _case("take", ALL, (4,), then=(np.array([2, 0, -1]),), axis=[0, None])
    yield _case("take_along_axis", ALL, (2, 2), then=(np.array([[1, 0], [-1, 1]]),), axis=[0, -1])
    yield _case("matmul", NUMBERS, (2, 3, 2), (2, 4))
    yield _case("tensordot", NUMBERS, (2, 2, 2), (2, 2, 2), axes=[1, ((0,), (1,))])
    yield _case("vecdot", NUMBERS, (2, 3), (3,))
    for name, dtypes, shapes in (("cross", NUMBERS, ((2, 3), (3,))), ("outer", NUMBERS, ((2,), (3,)))):
        yield _case(f"linalg.{name}", dtypes, *shapes)
    yield _case("linalg.diagonal", ALL, (2, 3, 3), offset=[-1, 0, 1])
    yield _case("linalg.trace", NUMBERS, (2, 3, 3), offset=[-1, 0, 1])
    yield _case("linalg.vector_norm", FLOATS, (2, 3), axis=[None, 0], ord=[0, 1, 2, 3, float("inf")], keepdims=flags)
    yield _case("linalg.matrix_norm", FLOATS, (2, 3, 3), ord=["fro", 1, -1, float("inf")], keepdims=flags)
    for name in ("det", "inv", "cholesky", "eigvalsh", "matrix_rank", "pinv", "slogdet", "svdvals"):
        yield _square(f"linalg.{name}", 100.0)
    yield _square("linalg.solve", 100.0, np.ones(3, np.float32))
    yield _square("linalg.matrix_power", 0.0, 2)
    for name in ("fft", "ifft"):
        yield _case(f"fft.{name}", FLOATS[2:], (3, 4), n=[3, 6], axis=[0, -1], norm=["backward", "ortho", "forward"])
    yield _case("fft.rfft", reals, (3, 4), n=[3, 6], axis=[0, -1])
    for name in ("irfft", "hfft"):
        yield _case(f"fft.{name}", FLOATS[2:], (3, 4), n=[3, 6])
    for name in ("fftn", "ifftn", "irfftn"):
        yield _case(f"fft.{name}", FLOATS[2:], (3, 4), axes=[(0, 1), (-1,)])
    for name in ("fftshift", "ifftshift"):
        yield _case(f"fft.{name}", FLOATS, (3, 4), axes=[None, 0])


def _function(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def _converted(value: Any, convert: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, list):
        return [convert(x) for x in value]
    return convert(value) if isinstance(value, np.ndarray) else value


def _on_host(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [_on_host(x) for x in result]
    return result.numpy() if isinstance(result, polyhal.Tensor) else np.asarray(result)


def _compare(found: Any, expected: Any) -> None:
    """Rounding: at most a hundred units of the largest element; dtypes and shapes agree."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _compare(one, other)
        return
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    unit = np.finfo(expected.dtype).eps
    size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=100 * unit, atol=100 * unit * size)


def check(case: Case, device: polyhal.Device, examples: int) -> None:
    """Compare results of a function for some calls. Raises AssertionError, and the errors of the function."""
    import array_api_strict

    storage = {d.name.rstrip("_") for d in device.backend.capabilities.storage} - {d.name for d in device.stand_ins}

    def stored(dtypes: tuple[str, ...]) -> tuple[str, ...]:
        parts = {"complex64": "float32", "complex128": "float64"}
        return tuple(d for d in dtypes if parts.get(d, d) in storage)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case.calls(stored))
    def run(call: Call) -> None:
        args, keywords = call

        def apply(namespace: Any, convert: Callable[[np.ndarray], Any]) -> Any:
            operands = [_converted(x, convert) for x in args]
            with np.errstate(all="ignore"):
                return _on_host(_function(namespace, case.name)(*operands, **keywords))

        expected = apply(array_api_strict, lambda x: array_api_strict.asarray(x.copy()))
        _compare(apply(polyhal, lambda x: polyhal.tensor(x, device=device)), expected)

    run()
