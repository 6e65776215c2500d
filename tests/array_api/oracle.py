"""Functions of the Array API with strategies for their arguments, compared with array-api-strict."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import polyhal
from tests.array_api.case import ALL, FLOATS, INTEGERS, NUMBERS, REALS, Call, Case, DTypeName, arrays
from tests.array_api.more_cases import more_cases


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
    yield from _array_functions()
    yield from more_cases()


def names() -> list[str]:
    """Return the functions, operators and attributes of the standard, as array-api-strict has them."""
    import array_api_strict as strict

    def functions(module: Any, prefix: str = "") -> list[str]:
        found = ((name, getattr(module, name)) for name in module.__all__ if not name.endswith("_strict_flags"))
        return [prefix + n for n, f in found if callable(f) and not isinstance(f, types.ModuleType | type)]

    array = type(strict.asarray(0))
    members = {n for n in vars(array) if n.startswith("__") and n not in _NOT_STANDARD}
    attributes = [f"array.{n}" for n, v in vars(array).items() if isinstance(v, property) and not n.startswith("_")]
    linalg, fft = functions(strict.linalg, "linalg."), functions(strict.fft, "fft.")
    return sorted({*functions(strict), *linalg, *fft, *members, *attributes, "to_device"})


_OF_PYTHON = """annotations array array_priority buffer dict doc hash init iter module new reduce repr slots str
    weakref"""
_NOT_STANDARD = frozenset(f"__{name}__" for name in _OF_PYTHON.split())
"""Members of array-api-strict's class that the standard does not have."""
ELSEWHERE = {
    "__array_namespace__": "test_array_api_names.py",
    "__array_namespace_info__": "test_array_api_names.py",
    "__dlpack__": "test_array_api_exchanges.py",
    "__dlpack_device__": "test_array_api_exchanges.py",
    "array.device": "test_array_api_names.py",
    "to_device": "test_array_api_names.py",
}
"""Members whose results differ between namespaces, and the files that test them."""


def _array_functions() -> Iterator[Case]:
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
    """Return a function of a namespace, or a function that calls an operator or reads an attribute of its first argument."""
    if name.startswith("array."):
        return lambda x: getattr(x, name.removeprefix("array."))
    if name == "__setitem__":
        return _after_assignment
    if name.startswith("__i") and hasattr(operator, name) and name not in ("__invert__", "__index__"):
        return getattr(operator, name)  # in place, or a new array where the class has no such method
    if name.startswith("__"):
        return lambda x, *others: getattr(x, name)(*others)
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def _after_assignment(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def _converted(value: Any, namespace: Any, convert: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [convert(x) for x in value]
    if isinstance(value, DTypeName):
        return getattr(namespace, value)
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
            operands = [_converted(x, namespace, convert) for x in args]
            named = {name: _converted(x, namespace, convert) for name, x in keywords.items()}
            with np.errstate(all="ignore"), device:
                return _on_host(case.form(namespace, _function(namespace, case.name)(*operands, **named)))

        expected = apply(array_api_strict, lambda x: array_api_strict.asarray(x.copy()))
        _compare(apply(polyhal, lambda x: polyhal.tensor(x, device=device)), expected)

    run()
