"""GPU kernels of matrix products, and portable fallbacks of kernels for NVIDIA's tensor cores, on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import EPSILON, check, upload

from polyhal.backends.common.codegen.elementwise import ExpressionStep
from polyhal.backends.common.problems import gemm
from polyhal.backends.common.problems.gemm import Addend, Epilogue, Matrix, Product
from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c import ptx
from polyhal.backends.opencl_c.lowering.gemm import (
    dispatch,
    mma,
    operand_copies,
    sliced_k,
    tensor_cores,
    tile_configs,
    wgmma,
)
from polyhal.backends.opencl_c.lowering.gemm import tiles as local_tiles
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import WarpgroupTile, WarpTile
from polyhal.backends.opencl_c.lowering.gemm.tiles import SimtTile
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

Method = Callable[[Any, Product], Launch]

_HALVES = {WarpTile(2, 32, 64, 32, 32, 32, 2): 1.0}
_SINGLES = {WarpTile(4, 32, 64, 32, 32, 16, 3): 1.0}
_WARPGROUPS = {terms: {list(tiles)[-1]: 1.0} for terms, tiles in tile_configs.WGMMA_TILES.items()}
"""The smallest tiles, because a CPU keeps a group's sums in memory."""


def tiles(asynchronous: bool) -> Method:
    """Return a SIMT tile with or without asynchronous copies."""
    return lambda runtime, p: local_tiles.multiply(runtime, p, SimtTile(1, 1, 16, 2), asynchronous=asynchronous)


def by_wgmma(bf16_terms: int) -> Method:
    return lambda runtime, p: wgmma.build(runtime, p, _WARPGROUPS[bf16_terms])


METHODS: dict[str, tuple[Method, DType, float]] = {
    "sliced-K": (lambda r, p: sliced_k.multiply(r, p, sliced_k.SlicedTile(32, 32)), dtypes.float32, 2.0**-22),
    "sliced-K, clusters": (
        lambda r, p: sliced_k.multiply(r, p, sliced_k.SlicedTile(32, 32, quad_rows=2, cluster=4)),
        dtypes.float32,
        2.0**-22,
    ),
    "sliced-K, half": (lambda r, p: sliced_k.multiply(r, p, sliced_k.SlicedTile(16, 32)), dtypes.float16, 2.0**-10),
    "tiles": (tiles(False), dtypes.float32, 2.0**-22),
    "tiles, asynchronous": (tiles(True), dtypes.float32, 2.0**-22),
    "tiles, half": (tiles(False), dtypes.float16, 2.0**-10),
    "mma, half": (lambda r, p: mma.build(r, p, _HALVES), dtypes.float16, 2.0**-10),
    "mma, bfloat16": (lambda r, p: mma.build(r, p, _HALVES), dtypes.bfloat16, 2.0**-7),
    "mma, rounded": (lambda r, p: mma.build(r, p, _SINGLES), dtypes.float32, 2.0**-10),
    "mma, split": (lambda r, p: mma.build(r, p, _SINGLES, 2), dtypes.float32, 2.0**-21),
    "wgmma, half": (by_wgmma(1), dtypes.float16, 2.0**-10),
    "wgmma, split": (by_wgmma(3), dtypes.float32, 2.0**-21),
    "wgmma, rounded": (by_wgmma(1), dtypes.float32, 2.0**-7),
}
"""Methods by name, with dtype and error bound in units of the sum of the products' magnitudes."""
# Edges in all directions; whole copies of 16 bytes and single elements; split terms.
CASES = [("nn", (70, 136, 72)), ("nt", (33, 65, 77)), ("tt", (40, 48, 600))]


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the kernels are long, and equal on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def features_of_a_gpu(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    """Simulate a GPU's local memory and compute units, so that tiles fit and split-K is used."""
    features = replace(device.backend.runtime.features, compute_units=4, static_local_memory=1 << 20)
    monkeypatch.setattr(device.backend.runtime, "features", features)


def draw(rng: Any, dtype: DType, transposed: bool, *shape: int) -> Any:
    values = rng.uniform(-1, 1, shape[:-2] + (shape[:-3:-1] if transposed else shape[-2:])).astype(dtype.numpy)
    return values.swapaxes(-1, -2) if transposed else values


def multiply(device: Any, method: Method, x: Any, y: Any, out_dtype: DType | None = None, **changes: Any) -> Any:
    """Return x @ y by one method; unwritten elements stay 77."""
    refs = [upload(device, a) for a in (x, y)]
    shape = np.matmul(np.empty(x.shape, bool), np.empty(y.shape, bool)).shape
    out = device.empty(out_dtype or refs[0].dtype, shape)
    device.backend.fill(77, out)
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    launch = method(device.backend.runtime, replace(p, **changes))
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    return device.download(out)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("transposed", "shape"), CASES, ids=str)
def test_every_method(device: Any, rng: Any, name: str, transposed: str, shape: tuple[int, int, int]) -> None:
    method, dtype, unit = METHODS[name]
    m, n, k = shape
    x, y = draw(rng, dtype, transposed[0] == "t", m, k), draw(rng, dtype, transposed[1] == "t", k, n)
    got = multiply(device, method, x, y).astype(np.float64)
    x, y = x.astype(np.float64), y.astype(np.float64)
    # Roundings of the operands, the sums and the result.
    bound = np.abs(x) @ np.abs(y)
    assert (np.abs(got - x @ y) <= 4 * unit * bound + EPSILON[dtype.name] * np.abs(x @ y)).all()


@pytest.mark.parametrize("name", ["sliced-K", "tiles, asynchronous", "mma, half", "wgmma, split"])
@pytest.mark.parametrize(("x", "y"), [((2, 1, 40, 48), (3, 48, 36)), ((40, 48), (3, 48, 36))], ids=str)
def test_batches(device: Any, rng: Any, name: str, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    method, dtype, unit = METHODS[name]
    a, b = draw(rng, dtype, False, *x), draw(rng, dtype, False, *y)
    got = multiply(device, method, a, b).astype(np.float64)
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * unit * 48)


@pytest.mark.parametrize("name", ["mma, half", "mma, rounded", "wgmma, half"])
@pytest.mark.parametrize("transposed", [False, True], ids=["K-major", "MN-major"])
def test_lines_end_within_a_chunk(device: Any, rng: Any, name: str, transposed: bool) -> None:
    method, dtype, unit = METHODS[name]
    x, y = draw(rng, dtype, transposed, 40, 75), draw(rng, dtype, transposed, 75, 67)
    wide = []
    for a in (x, y):
        rows = a.T if transposed else a
        # Elements outside the view must not affect results.
        full = np.full((rows.shape[0], 80), np.nan, dtype.numpy)
        full[:, : rows.shape[1]] = rows
        view = full[:, : rows.shape[1]]
        wide.append(view.T if transposed else view)
    got = multiply(device, method, *wide).astype(np.float64)
    want = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * unit * 75)


@pytest.mark.parametrize("name", ["sliced-K", "tiles", "tiles, asynchronous", "mma, bfloat16", "wgmma, split"])
def test_any_strides(device: Any, rng: Any, name: str) -> None:
    method, dtype, unit = METHODS[name]
    x, y = draw(rng, dtype, False, 40, 160)[:, ::-2], draw(rng, dtype, False, 160, 100)[1::2, ::-2]
    got = multiply(device, method, x, y).astype(np.float64)
    want = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * unit * 80)


def test_operands_without_contiguous_lines_are_copied(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One operand is broadcast along all axes, as the gradient of a sum is, and both axes of the other one have gaps."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, cpu=False))
    monkeypatch.setattr(operand_copies, "_MIN_WORK", 1)
    built: list[Product] = []

    def method(runtime: Any, p: Product) -> Launch:
        built.append(p)
        return tiles(False)(runtime, p)

    x, y = np.broadcast_to(np.float32(1.5), (2, 70, 80)), draw(rng, dtypes.float32, False, 160, 160)[1::2, ::-2]
    got = multiply(device, partial(operand_copies.with_contiguous_lines, build=method), x, y).astype(np.float64)
    (p,) = built
    assert (p.left.row, p.left.column, p.left.batch, p.right.row, p.right.column) == (80, 1, (0, 0, 0), 80, 1)
    want = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * 2.0**-22 * 1.5 * 80)


@pytest.mark.parametrize("name", ["sliced-K", "tiles", "mma, half", "wgmma, split"])
@pytest.mark.parametrize("terms", [40, 1200], ids=["whole", "shared out"])
def test_bias(device: Any, rng: Any, name: str, terms: int) -> None:
    method, dtype, unit = METHODS[name]
    x, y, bias = draw(rng, dtype, False, 40, terms), draw(rng, dtype, True, terms, 36), rng.uniform(-9, 9, 36)
    bias = bias.astype(dtype.numpy)
    refs = [upload(device, a) for a in (x, y, bias)]
    out = device.empty(dtype, (40, 36))
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, 2, 3, 4))
    assert isinstance(p, Product)
    launch = method(device.backend.runtime, p)
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    want = x.astype(np.float64) @ y.astype(np.float64) + bias.astype(np.float64)
    np.testing.assert_allclose(device.download(out).astype(np.float64), want, rtol=0, atol=4 * unit * (terms + 9))


@pytest.mark.parametrize(
    ("name", "columns"), [("mma, half", 48), ("mma, half", 35), ("mma, split", 36), ("wgmma, half", 48)], ids=str
)
def test_epilogue_with_a_scaled_addend(device: Any, rng: Any, name: str, columns: int) -> None:
    """Columns are stored in whole groups, in pairs, and one by one."""
    method, dtype, unit = METHODS[name]
    x, y = draw(rng, dtype, False, 40, 64), draw(rng, dtype, True, 64, columns)
    addend, factor = (rng.uniform(-2, 2, shape).astype(dtype.numpy) for shape in ((40, columns), (1,)))
    refs = [upload(device, a) for a in (x, y, addend, factor)]
    out = device.empty(dtype, (40, columns))
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, None, 4, 5))
    assert isinstance(p, Product)
    operands = (Addend(replace(p.out, place=2), dtype), Addend(Matrix(3, 0, 0, (0, 0, 0)), dtype))
    steps = (ExpressionStep("multiply", (0, 2), dtypes.float32), ExpressionStep("add", (3, 1), dtypes.float32))
    launch = method(device.backend.runtime, replace(p, epilogue=Epilogue(steps, operands)))
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    x, y, addend, factor = (a.astype(np.float64) for a in (x, y, addend, factor))
    got = device.download(out).astype(np.float64)
    np.testing.assert_allclose(got, x @ y * factor + addend, rtol=0, atol=8 * unit * 66)


@pytest.mark.parametrize("name", ["mma, split", "wgmma, split"])
def test_split_operands_keep_the_range_of_float32(device: Any, rng: Any, name: str) -> None:
    """Operands have distant exponents and numbers that cannot be split: the largest numbers, infinities, NaN."""
    method = METHODS[name][0]
    x, y = (draw(rng, dtypes.float32, False, *s) * np.exp2(rng.integers(-60, 61, s)) for s in ((40, 50), (50, 33)))
    x, y = x.astype(np.float32), y.astype(np.float32)
    bound = np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64))
    x[3, 5], x[4, 6], y[7, 8] = np.inf, np.nan, -np.inf
    x[20], y[:, 20] = 0, 0
    x[20, 1], y[1, 20] = np.finfo(np.float32).max, 1
    got = multiply(device, method, x, y)
    with np.errstate(all="ignore"):
        want = x.astype(np.float64) @ y.astype(np.float64)
        single = x @ y
    special = ~np.isfinite(want)
    assert special.sum() > 70
    np.testing.assert_array_equal(got[special], single[special])
    assert got[20, 20] == np.finfo(np.float32).max
    # Row and column 20 were recomputed in float32, with a number far above the bound.
    special[20] = special[:, 20] = True
    assert (np.abs(got[~special] - want[~special]) <= 2.0**-20 * bound[~special]).all()


@pytest.mark.parametrize("name", ["mma, split", "wgmma, split"])
@pytest.mark.parametrize("terms", [64, 1500])
def test_split_is_as_exact_as_float32(device: Any, rng: Any, name: str, terms: int) -> None:
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((64, terms), (terms, 64)))
    want = x.astype(np.float64) @ y.astype(np.float64)
    error = np.sqrt(np.mean((multiply(device, METHODS[name][0], x, y) - want) ** 2))
    plain = np.sqrt(np.mean((multiply(device, tiles(False), x, y) - want) ** 2))
    assert error <= 2 * plain


def test_wide_sums_of_halves(device: Any, rng: Any) -> None:
    x, y = draw(rng, dtypes.float16, False, 40, 64), draw(rng, dtypes.float16, False, 64, 36)
    want = x.astype(np.float64) @ y.astype(np.float64)
    for name in ("tiles, half", "mma, half", "wgmma, half"):
        got = multiply(device, METHODS[name][0], x, y, dtypes.float32)
        np.testing.assert_allclose(got, want, rtol=0, atol=64 * 2.0**-22)


@pytest.mark.parametrize("k", [90, 700], ids=["whole", "split"])
def test_transposed_copy_of_the_right_operand(device: Any, rng: Any, k: int) -> None:
    runtime = device.backend.runtime
    runtime.features = replace(runtime.features, compute_units=4)
    x, y = draw(rng, dtypes.float32, False, 70, k), draw(rng, dtypes.float32, True, k, 90)
    got = multiply(device, lambda r, p: local_tiles.with_transposed_b(r, p, SimtTile(1, 1, 16, 2)), x, y)
    np.testing.assert_allclose(got, x.astype(np.float64) @ y.astype(np.float64), rtol=0, atol=k * 2.0**-22)


def test_choices_fit_the_device(device: Any) -> None:
    """Every tile of every table, and every candidate of a search, fits on a device of its kind."""
    runtime = device.backend.runtime
    hopper = replace(runtime.features, compute_capability=90, static_local_memory=200 << 10)
    warps = tile_configs.HALF_TILES | tile_configs.TF32_TILES | tile_configs.TF32X3_TILES
    warpgroups = tile_configs.WGMMA_TILES[1] | tile_configs.WGMMA_TILES[3]
    assert all(tile_configs.MMA.allowed(hopper, tile) for tile in warps)
    assert all(tile_configs.WGMMA.allowed(hopper, tile) for tile in warpgroups)
    for tile, family in [*((t, tile_configs.MMA) for t in warps), *((t, tile_configs.WGMMA) for t in warpgroups)]:
        for values in family.candidates(hopper, tile):  # type: ignore[attr-defined]
            found = replace(tile, **values)  # type: ignore[arg-type]
            assert found.items <= 512
            assert found.local_memory <= 200 << 10
            assert found.rows * found.columns == found.items * (found.rows * found.columns // found.items)
    spec = Spec(dtypes.float16, (8192, 8192), (8192, 1))
    p = gemm.describe(spec, spec, spec, (0, 1, None, 2, 3))
    assert not isinstance(p, Declined)
    for memory in (48 << 10, 96 << 10, 200 << 10):
        runtime.features = replace(runtime.features, static_local_memory=memory)
        tile, _ = tile_configs.choose(runtime, p, tile_configs.MMA, tile_configs.HALF_TILES)
        assert tile.local_memory <= max(memory, 64 << 10)


@pytest.mark.parametrize(
    "tile",
    [WarpTile(2, 64, 32, 32, 32, 32, 3), WarpTile(2, 32, 32, 32, 32, 64, 2), WarpgroupTile(1, 1, 128, 3)],
    ids=str,
)
def test_candidates_of_a_search(device: Any, rng: Any, tile: Any) -> None:
    """Two matrices with split terms and fewer groups than tiles: a group computes several tiles."""
    x, y = draw(rng, dtypes.float16, False, 2, 130, 200), draw(rng, dtypes.float16, True, 2, 200, 72)
    runtime = device.backend.runtime
    runtime.features = replace(runtime.features, compute_units=1)
    by: Any = mma.build if isinstance(tile, WarpTile) else wgmma.build
    got = multiply(device, lambda r, p: by(r, p, {tile: 1.0}), x, y)
    np.testing.assert_allclose(got, x.astype(np.float64) @ y.astype(np.float64), rtol=0, atol=4 * 2.0**-10 * 200)


def test_candidates_follow_dtype_and_precision(device: Any) -> None:
    def names(dtype: DType, precision: str, capability: int, size: int = 1024) -> list[str]:
        runtime = device.backend.runtime
        runtime.features = replace(runtime.features, compute_capability=capability)
        spec = Spec(dtype, (size, size), (size, 1))
        p = gemm.describe(spec, spec, spec, (0, 1, None, 2, 3))
        assert isinstance(p, Product)
        return [
            c.func.__module__.rpartition(".")[2]
            for c in tensor_cores.candidates(runtime, replace(p, precision=precision))
        ]  # type: ignore[attr-defined]

    assert names(dtypes.float16, "highest", 90) == ["wgmma", "mma"]
    assert names(dtypes.bfloat16, "highest", 80) == ["mma"]
    assert names(dtypes.float16, "highest", 90, 64) == ["wgmma", "mma"]
    assert names(dtypes.float16, "highest", 90, 32) == ["mma"]
    assert names(dtypes.float32, "highest", 90) == []
    assert names(dtypes.float32, "high", 90) == ["wgmma", "mma"]
    assert names(dtypes.float32, "high", 90, 256) == ["mma"]
    assert names(dtypes.float32, "medium", 86) == ["mma"]
    assert names(dtypes.int32, "high", 90) == []


def test_comments_become_instructions() -> None:
    text = b".version 8.4\n.target sm_90, texmode_independent\n.reqntid 256, 1, 1\n//sm_90a wgmma;\n// a comment\n\0"
    target = ptx.Target("sm_90a", 2)
    assert ptx.retarget(text, target) == (
        b".version 8.4\n.target sm_90a, texmode_independent\n.reqntid 256, 1, 1\n.minnctapersm 2\nwgmma;\n// a comment\n"
    )
    assert ptx.retarget(text, ptx.Target()) == text.rstrip(b"\0")
    cluster = ptx.retarget(text, ptx.Target(cluster=2))
    assert b".reqntid 256, 1, 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n" in cluster


def test_small_products_take_one_launch(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of a small perceptron on a GPU, narrow ones too, take one launch; larger ones and long sums use tiles."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, compute_units=132, vector_width=4))
    for m, n, k, small in (
        (128, 512, 784, True),
        (128, 10, 512, True),
        (10, 512, 4096, False),
        (4096, 4096, 64, False),
    ):
        specs = [Spec(dtypes.float32, shape, (shape[1], 1), True) for shape in ((m, k), (k, n), (m, n))]
        p = gemm.describe(*specs, (0, 1, None, 2, 3))
        assert isinstance(p, Product)
        assert sliced_k.suits(runtime, p) is small
    x, y = draw(rng, dtypes.float32, False, 40, 200), draw(rng, dtypes.float32, True, 200, 70)
    got = multiply(device, dispatch.build, x, y)
    np.testing.assert_allclose(got, x.astype(np.float64) @ y.astype(np.float64), rtol=0, atol=1e-4)


def test_groups_of_a_cluster_divide_the_terms_of_few_tiles(device: Any) -> None:
    h200 = as_gpu(device.backend.runtime.features, compute_units=132, compute_capability=90, clusters=True)

    def chosen(m: int, n: int, k: int, *, clusters: bool = True) -> sliced_k.SlicedTile:
        specs = [Spec(dtypes.float32, shape, (shape[1], 1), True) for shape in ((m, k), (k, n), (m, n))]
        p = gemm.describe(*specs, (0, 1, None, 2, 3))
        assert isinstance(p, Product)
        return sliced_k.choose(replace(h200, clusters=clusters), p)

    assert chosen(1024, 256, 128) == sliced_k.SlicedTile(32, 64, quad_rows=2)
    assert chosen(1024, 128, 512) == sliced_k.SlicedTile(32, 32, quad_rows=2)
    assert chosen(128, 128, 1024) == sliced_k.SlicedTile(32, 32, quad_rows=2, cluster=8)
    assert chosen(512, 128, 1024) == sliced_k.SlicedTile(32, 32, quad_rows=2, cluster=2)
    assert chosen(128, 128, 1024, clusters=False) == sliced_k.SlicedTile(16, 16)
    assert chosen(1024, 10, 128) == sliced_k.SlicedTile(16, 16)


@pytest.mark.parametrize(("rows", "outer", "inner", "cluster"), [(128, 10, 72, 1), (130, 50, 33, 4)])
def test_a_bias_is_added_up_on_the_way(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, rows: int, outer: int, inner: int, cluster: int
) -> None:
    tile = sliced_k.SlicedTile(32, 32, quad_rows=2, cluster=cluster)
    monkeypatch.setattr(sliced_k, "choose", lambda features, p: tile)
    monkeypatch.setattr(device.backend.runtime, "features", as_gpu(device.backend.runtime.features))
    check(device, "linear_weight_grad", [rng.uniform(-1, 1, (rows, outer)), rng.uniform(-1, 1, (rows, inner))])
