"""Checks of the required members of the contract, called directly with references as the framework would.

Every check uses outputs in poisoned memory, most at an offset, so that a member that ignores `Ref.offset` or writes a whole
block is found. The offsets rotate from dtype to dtype rather than within one, so that a kernel built for a layout is used again. Expected values come from NumPy in float64, or in the integer dtype itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, finfo
from polyhal.hal.layout import ALIGNMENT, contiguous
from polyhal.hal.ops.opdef import Tolerance
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_REDUCE, REQUIRED_UNARY
from polyhal.hal.testing.arrangements import ARRANGEMENTS, Arrangement, Guarded, adapted, arrange
from polyhal.hal.testing.scope import Scope
from polyhal.hal.testing.tolerances import EXACT, Bound, check_close
from polyhal.hal.testing.values import SEED, cast
from polyhal.tensor import Tensor

Check = Callable[[], None]

_FLOAT_UNARY = frozenset({"exp", "log", "sqrt", "sin", "floor"})
_SIZES = (1, 5, 2053)
"""One element, less than a vector, and many vectors with a rest. The last one alone where a dtype is one of many."""
_ULP = {"exp": 4.0, "log": 4.0, "sqrt": 4.0, "sin": 4.0, "div": 4.0}
"""Units allowed to single functions: OpenCL's full profile asks for 3 of exp and log, 3 of sqrt, 4 of sin, 2.5 of division."""


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, Check]]:
    """Every check of the contract by name."""

    def case(function: Callable[..., None], *args: Any) -> Check:
        return functools.partial(function, device, *args)

    yield "identity", case(identity)
    yield "memory", case(memory)
    yield "transfers", case(transfers)
    for name in sorted(REQUIRED_UNARY):
        yield f"unary/{name}", case(unary, name, scope)
    for name in sorted(REQUIRED_BINARY):
        yield f"binary/{name}", case(binary, name, scope)
    yield "special_values", case(special_values)
    yield "where", case(where, scope)
    for name in sorted(REQUIRED_REDUCE):
        yield f"reduce/{name}", case(reduce, name, scope)
    yield "matmul", case(matmul, scope)
    yield "gather", case(gather)
    yield "scatter_add", case(scatter_add)
    yield "fill", case(fill)
    yield "copy/layouts", case(copy_layouts, scope)
    yield "copy/casts", case(copy_casts, scope)
    yield "many_launches", case(many_launches)


# --- identity and memory --------------------------------------------------------------------------------------------


def identity(device: Device) -> None:
    """Info and capabilities are of the right types and hold together."""
    info, capabilities = device.info, device.capabilities
    assert isinstance(info, DeviceInfo), f"info is {info!r}"
    assert isinstance(capabilities, Capabilities), f"capabilities are {capabilities!r}"
    assert info.name, "info.name is empty"
    assert info.id, "info.id is empty"
    assert capabilities.compute <= capabilities.storage, "compute holds dtypes that storage lacks"
    for dtype in (dtypes.float32, dtypes.int32, dtypes.int64, dtypes.bool_):
        assert dtype in capabilities.storage, f"{dtype.name} must be storable"
    assert capabilities.limits.alignment > 0, "alignment must be positive"
    assert device.backend.memory_available() >= 0, "memory_available is negative"


def memory(device: Device) -> None:
    """Allocations are independent of each other and survive the release of others."""
    backend = device.backend
    sizes = (1, 3, 256, 4096, 100_001)
    handles = [backend.allocate(n) for n in sizes]
    try:
        for k, (handle, n) in enumerate(zip(handles, sizes, strict=True)):
            backend.copy_to_device(memoryview(bytes([k + 1]) * n), handle, 0)
        backend.deallocate(handles.pop(1))
        for k, (handle, n) in enumerate(zip(handles, (sizes[0], *sizes[2:]), strict=True)):
            out = bytearray(n)
            backend.copy_from_device(handle, 0, memoryview(out))
            assert set(out) == {k + 1 if k == 0 else k + 2}, f"an allocation of {n} bytes does not hold what was written"
    finally:
        for handle in handles:
            backend.deallocate(handle)
    backend.synchronize()


def transfers(device: Device) -> None:
    """Byte ranges at any offset; the source may change as soon as the upload returns."""
    backend = device.backend
    handle = backend.allocate(1024)
    try:
        expected = bytearray(1024)
        backend.copy_to_device(memoryview(bytes(1024)), handle, 0)
        for offset, n in ((0, 16), (4, 8), (1, 3), (511, 257), (1023, 1), (64, 512)):
            source = bytearray((offset * 7 + i) % 251 for i in range(n))
            expected[offset : offset + n] = source
            backend.copy_to_device(memoryview(source), handle, offset)
            source[:] = bytes(n)
        for offset, n in ((0, 1024), (3, 5), (1020, 4), (255, 513)):
            out = bytearray(n)
            backend.copy_from_device(handle, offset, memoryview(out))
            assert out == expected[offset : offset + n], f"{n} bytes from byte {offset} on differ"
    finally:
        backend.deallocate(handle)


# --- elementwise ----------------------------------------------------------------------------------------------------


def _domain(rng: np.random.Generator, size: Any, dtype: DType, low: float, high: float) -> np.ndarray:
    return cast(rng.uniform(low, high, size), dtype)


def _reference(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if as_dtype(array.dtype).is_floating_point else array


def _sizes(dtype: DType, scope: Scope) -> tuple[int, ...]:
    sizes = _SIZES if scope.full or dtype is dtypes.float32 else _SIZES[-1:]
    return tuple(min(n, 67) for n in sizes) if scope.small else sizes


def _compute(device: Device) -> list[DType]:
    return [d for d in dtypes.ALL if d in device.capabilities.compute]


def _unary_dtypes(device: Device, name: str) -> list[DType]:
    if name in _FLOAT_UNARY:
        return [d for d in _compute(device) if d.is_floating_point]
    if name == "not":
        return [d for d in _compute(device) if not d.is_floating_point]
    return [d for d in _compute(device) if d.kind in ("float", "int")]


def _launch(member: Callable[..., None], *arguments: Any) -> None:
    """Call a member of the contract with the references of tensors, which stay alive meanwhile."""
    member(*[a.ref if isinstance(a, Tensor) else a for a in arguments])


def _input(array: np.ndarray, device: Device, turn: int) -> Tensor:
    """A contiguous tensor, which may start anywhere in its buffer."""
    return arrange(array, (Arrangement.CONTIGUOUS, Arrangement.OFFSET, Arrangement.UNALIGNED)[turn % 3], device)


def _output(dtype: DType, shape: tuple[int, ...], device: Device, turn: int) -> Guarded:
    return Guarded(contiguous(dtype, shape), device, (0, ALIGNMENT, ALIGNMENT + 3)[turn % 3])


def _finish(out: Guarded, expected: np.ndarray, bound: Bound, what: str) -> None:
    check_close(out.tensor.numpy(), expected, out.tensor.dtype, bound, what)
    out.check(what)


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "floor": np.floor, "neg": np.negative,
    "not": lambda x: np.logical_not(x) if x.dtype.kind == "b" else np.invert(x),
}  # fmt: skip


def unary(device: Device, name: str, scope: Scope) -> None:
    """`unary(name)` on every dtype that has it, in several sizes and alignments."""
    low, high = {"log": (0.01, 50.0), "sqrt": (0.0, 50.0)}.get(name, (-8.0, 8.0))
    for turn, dtype in enumerate(_unary_dtypes(device, name)):
        for n in _sizes(dtype, scope):
            x = _domain(np.random.default_rng(SEED + n), n, dtype, low, high)
            out = _output(dtype, (n,), device, turn)
            _launch(device.backend.unary, name, _input(x, device, turn), out.tensor)
            tolerance = Tolerance(_ULP.get(name, 0.0), floor=1.0 if name == "sin" else 0.0)
            _finish(out, _UNARY[name](_reference(x)), Bound(tolerance), f"unary {name} of {n} {dtype.name}")


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.floor_divide(np.abs(a), np.abs(b))
    return np.where((a < 0) != (b < 0), -quotient, quotient) if a.dtype.kind == "i" else quotient


_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "max": np.maximum, "lt": np.less, "eq": np.equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


def _binary_dtypes(device: Device, name: str) -> list[DType]:
    have = _compute(device)
    if name in ("and", "or", "xor"):
        return [d for d in have if not d.is_floating_point]
    if name in ("shl", "shr"):
        return [d for d in have if d.is_integral]
    return [d for d in have if d.kind != "bool"]


def binary(device: Device, name: str, scope: Scope) -> None:
    """`binary(name)` on every dtype that has it; integers wrap, shifts and integer division stay in their domains."""
    for turn, dtype in enumerate(_binary_dtypes(device, name)):
        for n in _sizes(dtype, scope):
            rng = np.random.default_rng(SEED + n)
            a = _domain(rng, n, dtype, -100.0, 100.0) if dtype.is_integral else _domain(rng, n, dtype, -8.0, 8.0)
            if name in ("shl", "shr"):
                b = rng.integers(0, dtype.bits, n).astype(dtype.numpy)
            elif name == "div":
                b = cast(rng.choice([-1.0, 1.0], n) * rng.uniform(1.0, 9.0, n), dtype)
            else:
                b = _domain(rng, n, dtype, -8.0, 8.0)
                b[::3] = a[::3]
            result = dtypes.bool_ if name in ("lt", "eq") else dtype
            out = _output(result, (n,), device, turn)
            _launch(device.backend.binary, name, _input(a, device, turn), _input(b, device, turn + 1), out.tensor)
            with np.errstate(all="ignore"):
                expected = _BINARY[name](_reference(a), _reference(b))
            # Sums, differences and products of one operation are correctly rounded everywhere.
            ulp = _ULP.get(name, 0.0 if name in ("max", "lt", "eq") else 0.5) if dtype.is_floating_point else 0.0
            _finish(out, expected, Bound(Tolerance(ulp)), f"binary {name} of {n} {dtype.name}")


def special_values(device: Device) -> None:
    """NaN, infinities and signed zeros through the required names, as IEEE 754 and the contract have them."""
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    pairs = np.array(list(itertools.product(values, values)))
    for dtype in (d for d in _compute(device) if d.is_floating_point):
        x, a, b = (cast(v, dtype) for v in (values, pairs[:, 0].copy(), pairs[:, 1].copy()))
        for name in sorted(_FLOAT_UNARY | {"neg"}):
            out = _output(dtype, x.shape, device, 1)
            _launch(device.backend.unary, name, _input(x, device, 0), out.tensor)
            with np.errstate(all="ignore"):
                expected = _UNARY[name](_reference(x))
            _finish(out, expected, Bound(EXACT if name in ("neg", "floor") else Tolerance(4.0)), f"unary {name} of special {dtype.name}")
        for name in ("add", "sub", "mul", "div", "max", "lt", "eq"):
            out = _output(dtypes.bool_ if name in ("lt", "eq") else dtype, a.shape, device, 1)
            _launch(device.backend.binary, name, _input(a, device, 0), _input(b, device, 0), out.tensor)
            with np.errstate(all="ignore"):
                expected = _BINARY[name](_reference(a), _reference(b))
            # The sign of max(0, -0) is left open by IEEE 754.
            _finish(out, expected, Bound(Tolerance(0.5) if name == "max" else EXACT), f"binary {name} of special {dtype.name}")
        rows = np.stack([x, np.roll(x, 1), np.ones_like(x), np.full_like(x, -np.inf)])
        out = _output(dtype, (4,), device, 1)
        _launch(device.backend.reduce, "max", _input(rows, device, 0), out.tensor)
        _finish(out, _reference(rows).max(-1), Bound(EXACT), f"reduce max of special {dtype.name}")


def where(device: Device, scope: Scope) -> None:
    """`where` on every dtype, which passes bits through unchanged."""
    for turn, dtype in enumerate(_compute(device)):
        for n in _sizes(dtype, scope):
            rng = np.random.default_rng(SEED + n)
            condition, a, b = rng.random(n) < 0.5, _domain(rng, n, dtype, -9.0, 9.0), _domain(rng, n, dtype, -9.0, 9.0)
            out = _output(dtype, (n,), device, turn)
            _launch(
                device.backend.where, _input(condition, device, turn), _input(a, device, turn + 1), _input(b, device, turn + 2), out.tensor
            )
            _finish(out, np.where(condition, a, b), Bound(EXACT), f"where of {n} {dtype.name}")


# --- reductions and products ----------------------------------------------------------------------------------------

_ROWS = ((1, 1), (3, 1), (1, 7), (5, 33), (2, 1031), (257, 3))


def reduce(device: Device, name: str, scope: Scope) -> None:
    """`reduce(name)` over the last axis of matrices of several shapes, on every dtype that computes."""
    for dtype in _compute(device):
        if dtype.kind == "bool" and name != "max":
            continue
        for turn, shape in enumerate(s for s in _ROWS if scope.accepts(s[0] * s[1])):
            rng = np.random.default_rng(SEED + turn)
            low, high = (0.8, 1.25) if name == "prod" else (-3.0, 3.0)
            x = _domain(rng, shape, dtype, low, high)
            out = _output(dtype, shape[:1], device, turn)
            _launch(device.backend.reduce, name, _input(x, device, turn), out.tensor)
            wide = _reference(x)
            with np.errstate(all="ignore"):
                expected = {"sum": np.sum, "prod": np.prod, "max": np.max}[name](wide, axis=-1)  # type: ignore[operator]
                magnitudes = np.abs(wide).sum(-1) if name == "sum" and dtype.is_floating_point else None
            bound = Bound(EXACT) if name == "max" else Bound(Tolerance(1.0), shape[1], magnitudes)
            _finish(out, expected, bound, f"reduce {name} of {dtype.name}{list(shape)}")


_PRODUCTS = ((1, 1, 1, 1), (1, 3, 4, 5), (2, 1, 7, 1), (3, 17, 9, 33), (1, 70, 129, 65))


def matmul(device: Device, scope: Scope) -> None:
    """Batched products (B, M, K) @ (B, K, N) on every dtype that computes, except bool."""
    for dtype in (d for d in _compute(device) if d.kind != "bool"):
        for turn, (batch, m, k, n) in enumerate(p for p in _PRODUCTS if scope.accepts(p[0] * p[1] * p[2] * p[3] // 4)):
            rng = np.random.default_rng(SEED + turn)
            a, b = _domain(rng, (batch, m, k), dtype, -2.0, 2.0), _domain(rng, (batch, k, n), dtype, -2.0, 2.0)
            out = _output(dtype, (batch, m, n), device, turn)
            _launch(device.backend.matmul, _input(a, device, turn), _input(b, device, turn + 1), out.tensor)
            x, y = _reference(a), _reference(b)
            magnitudes = np.abs(x) @ np.abs(y) if dtype.is_floating_point else None
            _finish(out, x @ y, Bound(Tolerance(1.0), k, magnitudes), f"matmul of {dtype.name} {batch}x{m}x{k}x{n}")


# --- rows -----------------------------------------------------------------------------------------------------------

_TABLES = ((5, 3, 7), (1, 1, 1), (9, 33, 40), (4, 64, 5))


def gather(device: Device) -> None:
    """Rows by int32 and int64 numbers; numbers out of range give 0."""
    for dtype in (d for d in dtypes.ALL if d in device.capabilities.storage):
        for turn, (rows, width, count) in enumerate(_TABLES):
            rng = np.random.default_rng(SEED + turn)
            x = _domain(rng, (rows, width), dtype, -9.0, 9.0)
            index = rng.integers(-2, rows + 2, count).astype(np.int32 if turn % 2 else np.int64)
            if index.dtype == np.int64 and count > 3:
                index[:2] = (2**40, -(2**40))
            out = _output(dtype, (count, width), device, turn)
            _launch(device.backend.gather, _input(index, device, turn), _input(x, device, turn), out.tensor)
            inside = (index >= 0) & (index < rows)
            expected = np.where(inside[:, None], x[np.where(inside, index, 0)], np.zeros((), dtype.numpy))
            _finish(out, expected, Bound(EXACT), f"gather of {count} from {dtype.name}{[rows, width]}")


def scatter_add(device: Device) -> None:
    """Rows added where numbers say, several to one; numbers out of range are skipped."""
    for dtype in (d for d in _compute(device) if d in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)):
        for turn, (rows, width, count) in enumerate(_TABLES):
            rng = np.random.default_rng(SEED + turn)
            src = _domain(rng, (count, width), dtype, -9.0, 9.0)
            index = rng.integers(-2, rows + 2, count).astype(np.int32 if turn % 2 else np.int64)
            start = _domain(rng, (rows, width), dtype, -9.0, 9.0)
            out = _output(dtype, (rows, width), device, turn)
            _launch(device.backend.copy, arrange(start, Arrangement.CONTIGUOUS, device), out.tensor)
            _launch(device.backend.scatter_add, _input(index, device, turn), _input(src, device, turn), out.tensor)
            inside = (index >= 0) & (index < rows)
            expected, magnitudes = _reference(start).copy(), np.abs(_reference(start))
            np.add.at(expected, index[inside], _reference(src)[inside])
            np.add.at(magnitudes, index[inside], np.abs(_reference(src)[inside]))
            bound = Bound(Tolerance(1.0), count + 1, magnitudes if dtype.is_floating_point else None)
            _finish(out, expected, bound, f"scatter_add of {count} to {dtype.name}{[rows, width]}")


# --- fills and copies -----------------------------------------------------------------------------------------------


def fill(device: Device) -> None:
    """Numbers of every kind, into contiguous and strided outputs of every dtype."""
    for position, dtype in enumerate(d for d in dtypes.ALL if d in device.capabilities.storage):
        numbers: Sequence[Any] = (0, 1, True, 7) if dtype.kind != "bool" else (False, True, 0, 1)
        if dtype.is_floating_point:
            numbers = (*numbers, -1.5, float("inf"), float("nan"), float(finfo(dtype).max))
        elif dtype.is_integral:
            numbers = (*numbers, dtypes.iinfo(dtype).max, dtypes.iinfo(dtype).min)
        for turn, value in enumerate(numbers):
            shape = ((), (3, 5), (2, 3, 4), (37,))[(position + turn % 2) % 4]
            out = Guarded(contiguous(dtype, shape), device, ALIGNMENT + turn % 3, strided=turn % 2 == 1)
            _launch(device.backend.fill, value, out.tensor)
            _finish(out, np.full(shape, value, dtype.numpy), Bound(EXACT), f"fill of {dtype.name}{list(shape)} with {value!r}")


def copy_layouts(device: Device, scope: Scope) -> None:
    """`copy` from every arrangement into contiguous and strided outputs, for element sizes of 1, 2, 4 and 8 bytes."""
    shapes = ((), (1,), (37,), (5, 6), (3, 4, 5), (2, 1, 3, 4), (2, 2, 2, 2, 2)) + (() if scope.small else ((33, 65), (7, 300)))
    kinds = [d for d in (dtypes.uint8, dtypes.float16, dtypes.float32, dtypes.int64) if d in device.capabilities.storage]
    for turn, (shape, arrangement) in enumerate(itertools.product(shapes, ARRANGEMENTS)):
        for dtype in kinds if scope.full else (kinds[turn % len(kinds)],):
            x = adapted(_domain(np.random.default_rng(SEED + turn), shape, dtype, -90.0, 90.0), arrangement)
            out = Guarded(contiguous(dtype, shape), device, ALIGNMENT + turn % 2, strided=turn % 3 == 0)
            _launch(device.backend.copy, arrange(x, arrangement, device), out.tensor)
            _finish(out, x, Bound(EXACT), f"copy of {dtype.name}{list(shape)}, {arrangement}, into {out.tensor.spec}")


def copy_casts(device: Device, scope: Scope) -> None:
    """`copy` between dtypes as C casts: truncation towards zero, wrapping integers, non-zero is True."""
    storage = [d for d in dtypes.ALL if d in device.capabilities.storage]
    for i, source in enumerate(storage):
        # Each dtype meets four others from either side; the op `cast` is tried on all pairs.
        targets = storage if scope.full else [storage[(i + k) % len(storage)] for k in (1, 3, 4, 6)]
        for target in targets:
            x = _castable(source, target)
            out = _output(target, x.shape, device, i)
            _launch(device.backend.copy, _input(x, device, i), out.tensor)
            with np.errstate(all="ignore"):
                expected = x.astype(np.float64 if source.is_floating_point and target.is_floating_point else target.numpy)
            _finish(out, expected, Bound(EXACT), f"copy from {source.name} to {target.name}")


def _castable(source: DType, target: DType) -> np.ndarray:
    """Values of `source` whose cast to `target` C defines."""
    if source.is_floating_point:
        values = np.array([0.0, -0.0, 0.5, 1.5, 2.75, 100.0, 3.999] + ([] if target.kind in ("uint", "bool") else [-0.5, -1.5, -100.0]))
        return cast(values, source)
    if source.kind == "bool":
        return np.array([True, False, True])
    low, high = dtypes.iinfo(source).min, dtypes.iinfo(source).max
    return np.array([0, 1, 100, high, low, high // 3], source.numpy)


def many_launches(device: Device) -> None:
    """A long chain of dependent launches on reused memory keeps its order."""
    x = np.arange(64, dtype=np.float32)
    backend = device.backend
    a, b = (arrange(x, Arrangement.CONTIGUOUS, device) for _ in range(2))
    one = arrange(np.ones(64, np.float32), Arrangement.CONTIGUOUS, device)
    for _ in range(200):
        backend.binary("add", a.ref, one.ref, b.ref)
        backend.copy(b.ref, a.ref)
    backend.synchronize()
    check_close(a.numpy(), x + 200.0, dtypes.float32, Bound(EXACT), "200 dependent additions")
