"""Checks of the required members of the contract, called directly with refs, like in the framework.

Every check writes to guarded outputs, most of them at an offset, which reveals a member that ignores `Ref.offset` or
writes a whole block. The offsets rotate from dtype to dtype rather than within one, so that kernels built for a layout
are reused. Expected values come from NumPy in float64, or in the integer dtype itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.samples import Tolerance
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_REDUCE, REQUIRED_UNARY
from polyhal.hal.system.reference.tolerances import EXACT, Bound
from polyhal.hal.testing.kit import (
    contract_async,
    contract_foreign,
    contract_graphs,
    contract_import,
    contract_memory,
    contract_optional,
    contract_peer,
    contract_record,
)
from polyhal.hal.testing.kit.few_shapes import COLUMNS, LENGTH, ROWS
from polyhal.hal.testing.kit.input_layouts import InputLayout, place_input
from polyhal.hal.testing.kit.member_calls import (
    MemberCheck,
    as_input,
    call_member,
    check_output,
    compute_dtypes,
    draw,
    guarded_output,
    widened,
)
from polyhal.hal.testing.kit.sample_calls import SEED, cast_sample
from polyhal.hal.testing.kit.scope import Scope

_FLOAT_UNARY = frozenset({"exp", "log", "sqrt", "sin", "floor"})
_SIZES = (1, 5, 2053)
"""One element, less than a vector, and many vectors with a remainder. Dtypes other than float32 only use the last size."""
_ULP = {"exp": 4.0, "log": 4.0, "sqrt": 4.0, "sin": 4.0, "div": 4.0}
"""Units in the last place allowed for single functions. OpenCL's full profile requires 3 for exp, log and sqrt, 4 for sin
and 2.5 for division."""


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, MemberCheck]]:
    """Yield all checks of the contract, by name."""

    def case(function: Callable[..., None], *args: Any) -> MemberCheck:
        return functools.partial(function, device, *args)

    yield "identity", case(contract_memory.identity)
    yield "memory", case(contract_memory.memory)
    yield "transfers", case(contract_memory.transfers)
    for name in sorted(REQUIRED_UNARY):
        yield f"unary/{name}", case(unary, name, scope)
    for name in sorted(REQUIRED_BINARY):
        yield f"binary/{name}", case(binary, name, scope)
    yield "special_values", case(special_values)
    yield "where", case(where, scope)
    for name in sorted(REQUIRED_REDUCE):
        yield f"reduce/{name}", case(reduce, name, scope)
    yield "matmul", case(matmul, scope)
    yield "gather", case(gather, scope)
    yield "scatter_add", case(scatter_add, scope)
    yield "fill", case(contract_memory.fill)
    yield "copy/layouts", case(contract_memory.copy_layouts, scope)
    yield "copy/casts", case(contract_memory.copy_casts, scope)
    yield "many_launches", case(contract_memory.many_launches)
    yield from contract_async.checks(device, scope)
    yield from contract_peer.checks(device, scope)
    yield from contract_import.checks(device, scope)
    yield from contract_foreign.checks(device)
    yield from contract_record.checks(device)
    yield from contract_graphs.checks(device, scope)
    yield from contract_optional.checks(device, scope)


# --- elementwise ----------------------------------------------------------------------------------------------------


def _sizes(dtype: DType, scope: Scope) -> tuple[int, ...]:
    if scope.few_shapes:
        return (LENGTH,)
    sizes = _SIZES if scope.full or dtype is dtypes.float32 else _SIZES[-1:]
    return tuple(min(n, 67) for n in sizes) if scope.small else sizes


def _in_turn(have: list[DType], turn: int, scope: Scope) -> list[DType]:
    """Return all dtypes; in a small run float32, int32 and a third of the others, which rotates with `turn`."""
    if not scope.small:
        return have
    return [d for i, d in enumerate(have) if d in (dtypes.float32, dtypes.int32) or (i + turn) % 3 == 0]


def _unary_dtypes(device: Device, name: str) -> list[DType]:
    if name in _FLOAT_UNARY:
        return [d for d in compute_dtypes(device) if d.is_floating_point]
    if name == "not":
        return [d for d in compute_dtypes(device) if not d.is_floating_point]
    return [d for d in compute_dtypes(device) if d.kind in ("float", "int")]


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "floor": np.floor,
    "neg": np.negative,
    "not": lambda x: np.logical_not(x) if x.dtype.kind == "b" else np.invert(x),
}


def unary(device: Device, name: str, scope: Scope) -> None:
    """Check `unary(name)` on every supported dtype, in several sizes and alignments."""
    low, high = {"log": (0.01, 50.0), "sqrt": (0.0, 50.0)}.get(name, (-8.0, 8.0))
    for turn, dtype in enumerate(_unary_dtypes(device, name)):
        for n in _sizes(dtype, scope):
            x = draw(np.random.default_rng(SEED + n), n, dtype, low, high)
            out = guarded_output(dtype, (n,), device, turn)
            call_member(device.backend.unary, name, as_input(x, device, turn), out.tensor)
            tolerance = Tolerance(_ULP.get(name, 0.0), floor=1.0 if name == "sin" else 0.0)
            check_output(out, _UNARY[name](widened(x)), Bound(tolerance), f"unary {name} of {n} {dtype.name}")


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.floor_divide(np.abs(a), np.abs(b))
    return np.asarray(np.where((a < 0) != (b < 0), -quotient, quotient) if a.dtype.kind == "i" else quotient)


_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "max": np.maximum,
    "lt": np.less,
    "eq": np.equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}


def _binary_dtypes(device: Device, name: str) -> list[DType]:
    have = compute_dtypes(device)
    if name in ("and", "or", "xor"):
        return [d for d in have if not d.is_floating_point]
    if name in ("shl", "shr"):
        return [d for d in have if d.is_integral]
    return [d for d in have if d.kind != "bool"]


def binary(device: Device, name: str, scope: Scope) -> None:
    """Check `binary(name)` on the supported dtypes, in a small run on some of them.

    Integers wrap; shifts and divisors stay in their domains.
    """
    have = _binary_dtypes(device, name)
    for turn, dtype in enumerate(_in_turn(have, sorted(REQUIRED_BINARY).index(name), scope)):
        for n in _sizes(dtype, scope):
            rng = np.random.default_rng(SEED + n)
            a = draw(rng, n, dtype, -100.0, 100.0) if dtype.is_integral else draw(rng, n, dtype, -8.0, 8.0)
            if name in ("shl", "shr"):
                b = rng.integers(0, dtype.bits, n).astype(dtype.numpy)
            elif name == "div":
                b = cast_sample(rng.choice([-1.0, 1.0], n) * rng.uniform(1.0, 9.0, n), dtype)
            else:
                b = draw(rng, n, dtype, -8.0, 8.0)
                b[::3] = a[::3]
            result = dtypes.bool_ if name in ("lt", "eq") else dtype
            out = guarded_output(result, (n,), device, turn)
            call_member(
                device.backend.binary,
                name,
                as_input(a, device, turn),
                as_input(b, device, turn + 1),
                out.tensor,
            )
            with np.errstate(all="ignore"):
                expected = _BINARY[name](widened(a), widened(b))
            # A single sum, difference or product is correctly rounded.
            ulp = _ULP.get(name, 0.0 if name in ("max", "lt", "eq") else 0.5) if dtype.is_floating_point else 0.0
            check_output(out, expected, Bound(Tolerance(ulp)), f"binary {name} of {n} {dtype.name}")


def special_values(device: Device) -> None:
    """Check NaN, infinities and signed zeros in the required names against IEEE 754 and the contract."""
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    pairs = np.array(list(itertools.product(values, values)))
    for dtype in (d for d in compute_dtypes(device) if d.is_floating_point):
        x, a, b = (cast_sample(v, dtype) for v in (values, pairs[:, 0].copy(), pairs[:, 1].copy()))
        for name in sorted(_FLOAT_UNARY | {"neg"}):
            out = guarded_output(dtype, x.shape, device, 1)
            call_member(device.backend.unary, name, as_input(x, device, 0), out.tensor)
            with np.errstate(all="ignore"):
                expected = _UNARY[name](widened(x))
            check_output(
                out,
                expected,
                Bound(EXACT if name in ("neg", "floor") else Tolerance(4.0)),
                f"unary {name} of special {dtype.name}",
            )
        for name in ("add", "sub", "mul", "div", "max", "lt", "eq"):
            out = guarded_output(dtypes.bool_ if name in ("lt", "eq") else dtype, a.shape, device, 1)
            call_member(device.backend.binary, name, as_input(a, device, 0), as_input(b, device, 0), out.tensor)
            with np.errstate(all="ignore"):
                expected = _BINARY[name](widened(a), widened(b))
            # IEEE 754 does not specify the sign of max(0, -0).
            check_output(
                out,
                expected,
                Bound(Tolerance(0.5) if name == "max" else EXACT),
                f"binary {name} of special {dtype.name}",
            )
        rows = np.stack([x, np.roll(x, 1), np.ones_like(x), np.full_like(x, -np.inf)])
        out = guarded_output(dtype, (4,), device, 1)
        call_member(device.backend.reduce, "max", as_input(rows, device, 0), out.tensor)
        check_output(out, widened(rows).max(-1), Bound(EXACT), f"reduce max of special {dtype.name}")


def where(device: Device, scope: Scope) -> None:
    """Check `where` on every dtype; it copies bits unchanged."""
    for turn, dtype in enumerate(compute_dtypes(device)):
        for n in _sizes(dtype, scope):
            rng = np.random.default_rng(SEED + n)
            condition, a, b = rng.random(n) < 0.5, draw(rng, n, dtype, -9.0, 9.0), draw(rng, n, dtype, -9.0, 9.0)
            out = guarded_output(dtype, (n,), device, turn)
            call_member(
                device.backend.where,
                as_input(condition, device, turn),
                as_input(a, device, turn + 1),
                as_input(b, device, turn + 2),
                out.tensor,
            )
            check_output(out, np.where(condition, a, b), Bound(EXACT), f"where of {n} {dtype.name}")


# --- reductions and products ----------------------------------------------------------------------------------------

_ROWS = ((1, 1), (3, 1), (1, 7), (5, 33), (2, 1031), (257, 3))


def reduce(device: Device, name: str, scope: Scope) -> None:
    """Check `reduce(name)` over the last axis of matrices of several shapes, on every compute dtype, in a small run on some."""
    for dtype in _in_turn(compute_dtypes(device), sorted(REQUIRED_REDUCE).index(name), scope):
        if dtype.kind == "bool" and name != "max":
            continue
        shapes = ((ROWS, COLUMNS),) if scope.few_shapes else _ROWS
        for turn, shape in enumerate(s for s in shapes if scope.accepts(s[0] * s[1])):
            rng = np.random.default_rng(SEED + turn)
            low, high = (0.8, 1.25) if name == "prod" else (-3.0, 3.0)
            x = draw(rng, shape, dtype, low, high)
            out = guarded_output(dtype, shape[:1], device, turn)
            call_member(device.backend.reduce, name, as_input(x, device, turn), out.tensor)
            values = widened(x)
            with np.errstate(all="ignore"):
                expected = {"sum": np.sum, "prod": np.prod, "max": np.max}[name](values, axis=-1)  # type: ignore[operator]
                magnitudes = np.abs(values).sum(-1) if name == "sum" and dtype.is_floating_point else None
            bound = Bound(EXACT) if name == "max" else Bound(Tolerance(1.0), shape[1], magnitudes)
            check_output(out, expected, bound, f"reduce {name} of {dtype.name}{list(shape)}")


_PRODUCTS = ((1, 1, 1, 1), (1, 3, 4, 5), (2, 1, 7, 1), (3, 17, 9, 33), (1, 70, 129, 65))


def matmul(device: Device, scope: Scope) -> None:
    """Check batched products (B, M, K) @ (B, K, N) on every compute dtype except bool."""
    for dtype in (d for d in compute_dtypes(device) if d.kind != "bool"):
        sizes: Sequence[tuple[int, int, int, int]] = _PRODUCTS
        if scope.few_shapes:
            sizes = _PRODUCTS[3:4]
        elif not scope.full and dtype is not dtypes.float32:
            sizes = _PRODUCTS[1::3]
        for turn, (batch, m, k, n) in enumerate(p for p in sizes if scope.accepts(p[0] * p[1] * p[2] * p[3] // 4)):
            rng = np.random.default_rng(SEED + turn)
            a, b = draw(rng, (batch, m, k), dtype, -2.0, 2.0), draw(rng, (batch, k, n), dtype, -2.0, 2.0)
            out = guarded_output(dtype, (batch, m, n), device, turn)
            call_member(
                device.backend.matmul,
                as_input(a, device, turn),
                as_input(b, device, turn + 1),
                out.tensor,
            )
            x, y = widened(a), widened(b)
            magnitudes = np.abs(x) @ np.abs(y) if dtype.is_floating_point else None
            check_output(
                out, x @ y, Bound(Tolerance(1.0), k, magnitudes), f"matmul of {dtype.name} {batch}x{m}x{k}x{n}"
            )


# --- rows -----------------------------------------------------------------------------------------------------------

_TABLES = ((5, 3, 7), (1, 1, 1), (9, 33, 40), (4, 64, 5))


def _index(rng: np.random.Generator, rows: int, count: int, turn: int, device: Device) -> np.ndarray:
    """Draw row indices, some out of range: in int32, and in every second turn in int64 if the device stores it."""
    wide = not turn % 2 and dtypes.int64 in device.capabilities.storage
    return np.asarray(rng.integers(-2, rows + 2, count).astype(np.int64 if wide else np.int32))


def gather(device: Device, scope: Scope) -> None:
    """Check rows by int32 and int64 index; an index out of range yields zeros."""
    for dtype in (d for d in dtypes.ALL if d in device.capabilities.storage):
        for turn, (rows, width, count) in enumerate(_TABLES[:1] if scope.few_shapes else _TABLES):
            rng = np.random.default_rng(SEED + turn)
            x = draw(rng, (rows, width), dtype, -9.0, 9.0)
            index = _index(rng, rows, count, turn, device)
            if index.dtype == np.int64 and count > 3:
                index[:2] = (2**40, -(2**40))
            out = guarded_output(dtype, (count, width), device, turn)
            call_member(
                device.backend.gather,
                as_input(index, device, turn),
                as_input(x, device, turn),
                out.tensor,
            )
            inside = (index >= 0) & (index < rows)
            expected = np.where(inside[:, None], x[np.where(inside, index, 0)], np.zeros((), dtype.numpy))
            check_output(out, expected, Bound(EXACT), f"gather of {count} from {dtype.name}{[rows, width]}")


def scatter_add(device: Device, scope: Scope) -> None:
    """Check rows added by index, with repeated indices; an index out of range is skipped."""
    for dtype in (
        d for d in compute_dtypes(device) if d in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
    ):
        for turn, (rows, width, count) in enumerate(_TABLES[:1] if scope.few_shapes else _TABLES):
            rng = np.random.default_rng(SEED + turn)
            src = draw(rng, (count, width), dtype, -9.0, 9.0)
            index = _index(rng, rows, count, turn, device)
            start = draw(rng, (rows, width), dtype, -9.0, 9.0)
            out = guarded_output(dtype, (rows, width), device, turn)
            call_member(device.backend.copy, place_input(start, InputLayout.CONTIGUOUS, device), out.tensor)
            call_member(
                device.backend.scatter_add,
                as_input(index, device, turn),
                as_input(src, device, turn),
                out.tensor,
            )
            inside = (index >= 0) & (index < rows)
            expected, magnitudes = widened(start).copy(), np.abs(widened(start))
            np.add.at(expected, index[inside], widened(src)[inside])
            np.add.at(magnitudes, index[inside], np.abs(widened(src)[inside]))
            bound = Bound(Tolerance(1.0), count + 1, magnitudes if dtype.is_floating_point else None)
            check_output(out, expected, bound, f"scatter_add of {count} to {dtype.name}{[rows, width]}")
