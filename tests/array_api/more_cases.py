"""Cases of the Array API beyond functions of arrays: creation, dtypes, factorizations, indices, operators and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.array_api.case import ALL, FLOATS, INTEGERS, NUMBERS, REALS, Call, Case, DTypeName, arrays

Stored = Callable[..., Any]
_REAL_FLOATS = REALS[-2:]


def more_cases() -> Iterator[Case]:
    """Yield every case of this file."""
    yield from _creation()
    yield from _dtypes()
    yield from _functions()
    yield from _factorizations()
    yield from _operators()
    yield from _attributes()


def _given(dtypes: tuple[str, ...], *shapes: tuple[int, ...], then: tuple[Any, ...] = ()) -> Any:
    """Return a strategy for calls with arrays of one dtype, and then the same further arguments."""
    return lambda stored: arrays(stored(dtypes), *shapes).map(lambda xs: ((*xs, *then), {}))


def _with_dtype(dtypes: tuple[str, ...], *args: Any, **options: Any) -> Any:
    """Return a strategy for calls with a dtype, whose other arguments are the same, or one of a list."""

    def calls(stored: Stored) -> st.SearchStrategy[Call]:
        fixed = st.tuples(*(st.sampled_from(a) if isinstance(a, list) else st.just(a) for a in args))
        chosen = {k: st.sampled_from(v) for k, v in options.items()}
        dtype = st.sampled_from(stored(dtypes)).map(DTypeName)
        return st.tuples(fixed, st.fixed_dictionaries({"dtype": dtype}, optional=chosen))

    return calls


def _creation() -> Iterator[Case]:
    shapes = [(2, 3), (0, 2), (), 4]
    for name in ("zeros", "ones"):
        yield Case(name, _with_dtype(ALL, shapes))
    yield Case("empty", _with_dtype(ALL, shapes), lambda xp, r: xp.zeros_like(r))
    yield Case("full", _with_dtype(NUMBERS, shapes, [0, 1, 3]))
    yield Case("eye", _with_dtype(ALL, [1, 3], [None, 2], k=[-1, 0, 1]))
    yield Case("arange", _with_dtype(REALS, [0, 1, 5], [None, 8], [1, 2]))
    yield Case("linspace", _with_dtype(_REAL_FLOATS, [0.0, 1.0], [2.0, 5.0], [1, 4], endpoint=[False, True]))
    yield Case("asarray", _with_dtype(NUMBERS, [3, [1, 2], [[1], [2]], []]))
    for name in ("zeros_like", "ones_like"):
        yield Case(name, _given(ALL, (2, 3)))
    yield Case("empty_like", _given(ALL, (2, 3)), lambda xp, r: xp.zeros_like(r))
    yield Case("full_like", _given(NUMBERS, (2, 3), then=(3,)))
    yield Case("from_dlpack", _given(ALL[:-2], (2, 3)))  # array-api-strict and polyhal pass real numbers


def _named(xp: Any, dtype: Any) -> np.ndarray:
    """Return the name of a dtype as an array of its characters, which can be compared."""
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2].rstrip("_")
    return np.frombuffer(name.encode(), np.uint8)


def _dtypes() -> Iterator[Case]:
    def pairs(stored: Stored) -> st.SearchStrategy[Call]:
        same_kind = st.sampled_from([INTEGERS[:4], INTEGERS[4:], FLOATS, _REAL_FLOATS]).filter(stored)
        names = same_kind.flatmap(lambda kind: st.tuples(*[st.sampled_from(stored(kind)).map(DTypeName)] * 2))
        return names.map(lambda found: (found, {}))

    def one(dtypes: tuple[str, ...], *then: Any) -> Any:
        return lambda stored: st.sampled_from(stored(dtypes)).map(lambda name: ((DTypeName(name), *then), {}))

    yield Case("result_type", pairs, _named)
    yield Case("can_cast", pairs)
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]
    yield Case(
        "isdtype",
        lambda stored: st.tuples(
            st.tuples(st.sampled_from(stored(ALL)).map(DTypeName), st.sampled_from([*kinds, tuple(kinds[:2])])),
            st.just({}),
        ),
    )
    yield Case("iinfo", one(INTEGERS), lambda xp, r: [r.bits, r.max % 1000, r.min % 1000])
    yield Case("finfo", one(_REAL_FLOATS), lambda xp, r: [r.bits, float(r.eps), float(r.max), float(r.smallest_normal)])
    yield Case(
        "astype",
        lambda stored: st.tuples(
            st.tuples(
                arrays(stored(INTEGERS[:4]), (2, 3)).map(lambda xs: xs[0]),
                st.sampled_from(stored(("bool", "int16", "int32", *FLOATS))).map(DTypeName),
            ),
            st.just({}),
        ),
    )
    yield Case("broadcast_shapes", lambda stored: st.just((((2, 1, 3), (4, 1), ()), {})))


def _functions() -> Iterator[Case]:
    positive = lambda stored: arrays(stored(FLOATS), (2, 3)).map(  # noqa: E731
        lambda xs: ((np.where(xs[0] == 0, 1, xs[0]).astype(xs[0].dtype),), {})
    )
    yield Case("reciprocal", positive)
    yield Case("signbit", _given(_REAL_FLOATS, (2, 3)))
    yield Case("isin", _given(INTEGERS, (2, 3), (4,)))
    yield Case(
        "where",
        lambda stored: arrays(stored(ALL), (2, 3), (3,)).map(
            lambda xs: ((np.array([[True, False, True], [False, False, True]]), *xs), {})
        ),
    )
    yield Case(
        "searchsorted",
        lambda stored: st.tuples(
            arrays(stored(REALS), (5,), (2, 2)).map(lambda xs: (np.sort(xs[0]), xs[1])),
            st.fixed_dictionaries({}, optional={"side": st.sampled_from(["left", "right"])}),
        ),
    )
    yield Case("linalg.matmul", _given(NUMBERS, (2, 3, 2), (2, 4)))
    yield Case("linalg.matrix_transpose", _given(ALL, (2, 3, 1)))
    yield Case("linalg.tensordot", _given(NUMBERS, (2, 2, 2), (2, 2, 2)))
    yield Case("linalg.vecdot", _given(NUMBERS, (2, 3), (3,)))
    yield Case("fft.rfftn", _given(_REAL_FLOATS, (3, 4)))
    yield Case("fft.ihfft", _given(_REAL_FLOATS, (3, 4)))
    for name in ("fftfreq", "rfftfreq"):
        yield Case(f"fft.{name}", _with_dtype(_REAL_FLOATS, [1, 4, 5], d=[0.5, 2.0]))


def _factorizations() -> Iterator[Case]:
    """Yield factorizations, compared by the product of their factors: the signs of vectors are free."""

    def hermitian(stored: Stored) -> st.SearchStrategy[Call]:
        return arrays(stored(FLOATS), (2, 3, 3)).map(
            lambda xs: (((xs[0] + np.swapaxes(xs[0], -2, -1).conj()).astype(xs[0].dtype),), {})
        )

    def conj(xp: Any, x: Any) -> Any:
        return xp.conj(x) if xp.isdtype(x.dtype, "complex floating") else x

    def of_eigh(xp: Any, r: Any) -> list[Any]:
        vectors = r.eigenvectors
        return [r.eigenvalues, (vectors * xp.astype(r.eigenvalues, vectors.dtype)[:, None, :]) @ conj(xp, vectors.mT)]

    def of_svd(xp: Any, r: Any) -> list[Any]:
        return [r.S, (r.U * xp.astype(r.S, r.U.dtype)[:, None, :]) @ r.Vh]

    yield Case("linalg.eigh", hermitian, of_eigh)
    reduced = lambda stored: arrays(stored(FLOATS), (2, 3, 2)).map(lambda xs: (xs, {"full_matrices": False}))  # noqa: E731
    yield Case("linalg.svd", reduced, of_svd)
    yield Case("linalg.qr", _given(FLOATS, (2, 3, 2)), lambda xp, r: [r.Q @ r.R, conj(xp, r.Q.mT) @ r.Q])


def _without_zeros(dtypes: tuple[str, ...]) -> Any:
    """Return a strategy for calls with a positive array and the number 2."""
    return lambda stored: arrays(stored(dtypes), (2, 3)).map(
        lambda xs: ((np.where(xs[0] == 0, 1, np.abs(xs[0])).astype(xs[0].dtype), 2), {})
    )


def _operators() -> Iterator[Case]:
    """Yield operators of arrays, with an array or a number on the other side."""
    arithmetic = {
        NUMBERS: "add sub mul",
        FLOATS: "truediv",
        INTEGERS: "and or xor lshift rshift",
        REALS: "floordiv mod pow",
    }
    for dtypes, names in arithmetic.items():
        for name in names.split():
            number = 2 if name in ("lshift", "rshift", "pow", "floordiv", "mod", "truediv") else 3
            yield Case(f"__{name}__", _given(dtypes, (2, 3), then=(number,)))
            yield Case(f"__i{name}__", _given(dtypes, (2, 3), then=(number,)))
    for name in ("add", "sub", "mul"):
        yield Case(f"__r{name}__", _given(NUMBERS, (2, 3), then=(3,)))
    for name in ("and", "or", "xor"):
        yield Case(f"__r{name}__", _given(INTEGERS, (2, 3), then=(3,)))
    for name in ("floordiv", "mod", "pow"):
        yield Case(f"__r{name}__", _without_zeros(REALS))
    yield Case("__rtruediv__", _without_zeros(FLOATS))
    for name in ("lshift", "rshift"):
        yield Case(f"__r{name}__", _without_zeros(INTEGERS))
    for name in ("eq", "ne"):
        yield Case(f"__{name}__", _given(ALL, (2, 3), (3,)))
    for name in ("lt", "le", "gt", "ge"):
        yield Case(f"__{name}__", _given(REALS, (2, 3), (3,)))
    for name in ("matmul", "rmatmul"):
        yield Case(f"__{name}__", _given(NUMBERS, (2, 3, 3), (3, 3)))
    yield Case("__imatmul__", _given(NUMBERS, (2, 3, 3), (3, 3)))
    for name in ("neg", "pos", "abs"):
        yield Case(f"__{name}__", _given(NUMBERS if name != "abs" else FLOATS, (2, 3)))
    yield Case("__invert__", _given(("bool", *INTEGERS), (2, 3)))
    for name, dtypes in (("bool", ALL), ("int", REALS), ("float", REALS), ("complex", FLOATS), ("index", INTEGERS)):
        yield Case(f"__{name}__", _given(dtypes, ()))
    last = (slice(None, None, -2), ...)
    keys: list[Any] = [(0, ...), (-1, 2), last, (slice(1, 3), 0), (..., None, 1), (..., slice(3, 0, -2)), None]
    get = lambda stored: st.tuples(arrays(stored(ALL), (3, 4)), st.sampled_from(keys)).map(  # noqa: E731
        lambda found: ((found[0][0], found[1] if found[1] is not None else found[0][0] == 0), {})
    )
    yield Case("__getitem__", get)
    yield Case(
        "__setitem__",
        lambda stored: st.sampled_from(keys[:4]).flatmap(
            lambda key: arrays(stored(NUMBERS), (3, 4)).map(lambda xs: ((xs[0], key, 2), {}))
        ),
    )


def _attributes() -> Iterator[Case]:
    yield Case("array.T", _given(ALL, (2, 3)))
    yield Case("array.mT", _given(ALL, (2, 3, 1)))
    for name in ("ndim", "shape", "size"):
        yield Case(f"array.{name}", _given(ALL, (2, 3, 1)))
    yield Case("array.dtype", _given(ALL, (2, 3)), _named)
