"""Attention's kernels for GPUs, in small tiles, on any device; kernels for matrix units run as portable fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check, check_placed

from polyhal.backends.opencl_c.lowering.attention import decode, few_queries, fused_grad, mma, ping_pong
from polyhal.backends.opencl_c.lowering.attention import tiles as local_tiles
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall, backward_call, cached_call, forward_call
from polyhal.backends.opencl_c.lowering.attention.decode import DecodeTile
from polyhal.backends.opencl_c.lowering.attention.few_queries import FewQueriesTile, KeyDivision
from polyhal.backends.opencl_c.lowering.attention.fused_grad import FusedTile
from polyhal.backends.opencl_c.lowering.attention.mma import MmaTile, MmaTiles
from polyhal.backends.opencl_c.lowering.attention.operand_copies import with_vectors
from polyhal.backends.opencl_c.lowering.attention.ping_pong import PingPongTile
from polyhal.backends.opencl_c.lowering.attention.tiles import LocalTile
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined, Launch

pytestmark = pytest.mark.slow

Build = Callable[[Runtime, AttentionCall], Launch | Declined]


class _Chosen:
    """A backend that runs every call of attention by one kernel."""

    def __init__(self, backend: Any, forward: Build, backward: Build | None) -> None:
        self._backend = backend
        self._builds = {"attention": forward, "attention_grad": backward, "cached_attention": forward}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def lower(self, op: str, inputs: Any, outputs: Any, params: Mapping[str, Any]) -> Launch | Declined:
        describe = {"attention": forward_call, "cached_attention": cached_call}.get(op, backward_call)
        call = describe(inputs, outputs, params)
        build = self._builds[op]
        assert build is not None
        return call if isinstance(call, Declined) else build(self._backend.runtime, call)


def _compare(
    device: Any,
    rng: Any,
    builds: tuple[Build, Build | None],
    lengths: tuple[int, int, int, int],
    dtype: dtypes.DType,
    causal: bool,
    masked: str,
) -> None:
    """Compare two heads, forward and, if the kernel has one, backward."""
    t, s, d, e = lengths
    chosen = Harness(_Chosen(device.backend, *builds))
    keep = rng.random((t, s)) < 0.7
    keep[0] = False
    # Each row of the mask is one large number, which absorbs scores in float32 but not in float64: scores are 0.
    least = -6e4 if dtype is dtypes.float16 else -1e9
    large = np.where(np.arange(t)[:, None] % 3 == 0, least, np.where(keep, 0.0, least))
    mask = {"": None, "bool": keep, "float": rng.uniform(-1, 1, (2, 1, s)), "large": large}[masked]
    inputs = [
        rng.uniform(-2, 2, (2, t, d)) * (masked != "large"),
        rng.uniform(-2, 2, (2, s, d)),
        rng.uniform(-1, 1, (2, s, e)),
        mask,
    ]
    params = {"causal": causal, "scale": 0.3}
    check(chosen, "attention", inputs, dtype, ulps=32, **params)
    if builds[1] is None:
        return
    wide = [x if x is None or x.dtype == bool else x.astype(dtype.numpy).astype(np.float64) for x in inputs]
    with np.errstate(all="ignore"):
        out, lse = OPS["attention"].reference(*wide, **params)
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    saved = [out, np.asarray(lse).astype(statistic)]
    check(chosen, "attention_grad", [rng.uniform(-1, 1, out.shape), *inputs, *saved], dtype, ulps=64, **params)


@pytest.mark.parametrize(
    ("tile", "lengths", "dtype", "causal", "masked"),
    [
        (LocalTile(32, 32, 4, 4), (40, 70, 24, 20), dtypes.float32, True, ""),
        (LocalTile(16, 16, 2, 2), (20, 9, 7, 13), dtypes.bfloat16, True, "float"),
        (LocalTile(16, 16, 2, 2), (18, 33, 16, 16), dtypes.float64, True, ""),
        (LocalTile(64, 32, 2, 4), (70, 40, 32, 32), dtypes.float32, True, ""),
        (LocalTile(32, 32, 2, 2), (40, 70, 64, 20), dtypes.float16, False, "bool"),
        (LocalTile(32, 16, 2, 1), (40, 33, 24, 64), dtypes.float32, True, ""),
        (LocalTile(16, 16, 1, 1), (20, 33, 128, 20), dtypes.float32, False, "float"),
        (LocalTile(32, 16, 2, 1, slice=64), (40, 33, 120, 64), dtypes.float32, True, ""),
        (LocalTile(32, 32, 2, 2, slice=64), (40, 70, 64, 125), dtypes.float16, False, "bool"),
        (LocalTile(32, 32, 1, 4, slice=32), (33, 40, 70, 20), dtypes.float32, True, "float"),
        (LocalTile(16, 32, 1, 1, slice=128), (20, 33, 128, 120), dtypes.float32, True, ""),
        (LocalTile(16, 32, 1, 2), (20, 33, 64, 20), dtypes.float16, True, "bool"),
        (LocalTile(32, 16, 1, 2), (40, 33, 32, 64), dtypes.float32, True, ""),
        (LocalTile(16, 16, 1, 1, slice=64), (20, 33, 128, 64), dtypes.float32, False, "float"),
        (LocalTile(16, 16, 2, 2, slice=16), (20, 33, 16, 40), dtypes.float64, True, ""),
    ],
    ids=str,
)
def test_tiles_in_local_memory(
    device: Any, rng: Any, tile: LocalTile, lengths: Any, dtype: Any, causal: bool, masked: str
) -> None:
    whole = replace(tile, slice=0)
    builds = (partial(local_tiles.forward, candidates=(whole,)), partial(local_tiles.backward, candidates=(tile,)))
    _compare(device, rng, builds, lengths, dtype, causal, masked)


def _in_tiles(fuse_dq: bool) -> tuple[Build, Build]:
    tiles = (LocalTile(16, 16, 4, 4),)
    return (
        partial(local_tiles.forward, candidates=tiles),
        partial(local_tiles.backward, candidates=tiles, fuse_dq=fuse_dq),
    )


def test_tiles_that_add_dq_atomically(device: Any, rng: Any) -> None:
    _compare(device, rng, _in_tiles(True), (37, 20, 24, 20), dtypes.float32, True, "")


def _on_units(tile: MmaTile, fuse_dk_dv: bool = True) -> tuple[Build, Build]:
    tiles = MmaTiles(tile, tile, tile, fuse_dk_dv)
    return partial(mma.forward, tile=tile), partial(mma.backward, tiles=tiles)


@pytest.mark.parametrize(
    ("tile", "lengths", "dtype", "causal", "masked"),
    [
        (MmaTile(2, 1, 32, 2, rows_in_registers=True), (40, 70, 16, 16), dtypes.float16, True, ""),
        (MmaTile(1, 2, 16, 1, rows_in_registers=False), (35, 33, 13, 16), dtypes.bfloat16, True, "float"),
        (MmaTile(2, 1, 16, 1, rows_in_registers=False, terms=3), (35, 33, 13, 16), dtypes.float32, True, ""),
    ],
    ids=str,
)
def test_mma_tiles(device: Any, rng: Any, tile: MmaTile, lengths: Any, dtype: Any, causal: bool, masked: str) -> None:
    """Three bfloat16 terms are as exact as float32."""
    _compare(device, rng, _on_units(tile), lengths, dtype, causal, masked)


@pytest.mark.parametrize(("terms", "dtype", "masked"), [(1, dtypes.float16, "bool"), (3, dtypes.float32, "")], ids=str)
def test_wgmma_tiles(device: Any, rng: Any, terms: int, dtype: Any, masked: str) -> None:
    builds = _on_units(MmaTile(4, 1, 64, 1, False, wgmma=True, terms=terms), fuse_dk_dv=terms == 1)
    _compare(device, rng, builds, (70, 80, 24, 40), dtype, True, masked)


@pytest.mark.parametrize(("wgmma", "split_to", "window"), [(False, 1, None), (False, 100, 20), (True, 1, 9)])
def test_mma_tiles_with_a_cache(device: Any, rng: Any, wgmma: bool, split_to: int, window: int | None) -> None:
    """Sequences of three lengths; the queries of one continue beyond its cache. Keys beyond a length are not used."""
    tile = MmaTile(4 if wgmma else 2, 1, 64 if wgmma else 16, 1, False, wgmma, split_to=split_to, min_keys=16)
    q, keys, values = (rng.uniform(-2, 2, (3, heads, n, 24)) for heads, n in ((4, 70), (2, 150), (2, 150)))
    lengths = np.array([0, 80, 100], np.int32)
    for b, n in enumerate(lengths + 70):
        keys[b, :, n:], values[b, :, n:] = 3e4, 3e4
    chosen = Harness(_Chosen(device.backend, partial(mma.forward, tile=tile), None))
    params = {"scale": 0.3, "window": window, "softcap": None}
    check(chosen, "cached_attention", [q, keys, values, lengths], dtypes.float16, ulps=32, **params)


@pytest.mark.parametrize(
    ("tiles", "lengths", "dtype", "causal", "masked"),
    [
        ((PingPongTile(1, 64), FusedTile(128)), (70, 150, 24, 40), dtypes.float16, True, ""),
        ((PingPongTile(2, 96, 3), FusedTile(64)), (130, 140, 80, 72), dtypes.bfloat16, False, "bool"),
        ((PingPongTile(1, 64), FusedTile(64, 1, wide=True)), (70, 150, 136, 24), dtypes.bfloat16, True, ""),
    ],
    ids=str,
)
def test_tiles_with_bulk_copies(
    device: Any, rng: Any, tiles: tuple[PingPongTile, FusedTile], lengths: Any, dtype: Any, causal: bool, masked: str
) -> None:
    builds = (partial(ping_pong.forward, tile=tiles[0]), partial(fused_grad.backward, tile=tiles[1]))
    _compare(device, rng, builds, lengths, dtype, causal, masked)


def test_broadcast_gradients_are_copied(device: Any, rng: Any) -> None:
    """The rows of one head are copied, so that all operands are read in whole vectors."""
    forward, backward = _on_units(MmaTile(2, 1, 32, 1, rows_in_registers=False))
    assert backward is not None
    calls: list[AttentionCall] = []

    def build(runtime: Runtime, call: AttentionCall) -> Launch | Declined:
        calls.append(call)
        return backward(runtime, call)

    def copied(runtime: Runtime, call: AttentionCall) -> Launch | Declined:
        return with_vectors(runtime, call, 8, partial(build, runtime))

    chosen = Harness(_Chosen(device.backend, forward, copied))
    q, k, v = (rng.uniform(-2, 2, (2, n, 16)).astype(np.float16) for n in (40, 33, 33))
    out, lse = OPS["attention"].reference(*(x.astype(np.float64) for x in (q, k, v)), None)
    inputs = [np.broadcast_to(np.float16(0.75), out.shape), q, k, v, None, out, np.asarray(lse).astype(np.float32)]
    check(chosen, "attention_grad", inputs, dtypes.float16, ulps=64)
    (call,) = calls
    assert call.aligned(8)
    assert call.shape.batch_strides[0] == (0, 0, 0)


@pytest.mark.parametrize(("causal", "masked"), [(True, ""), (False, "bool"), (False, "float")], ids=str)
def test_few_queries_that_share_keys(device: Any, rng: Any, causal: bool, masked: str) -> None:
    """Keys are divided among warps, and among groups if `causal`."""
    division = KeyDivision(FewQueriesTile(3, 16, 2, rows_in_registers=causal), 1, *((3, 48) if causal else (1, 144)))
    build = partial(few_queries.forward, division=division)
    _compare(device, rng, (build, None), (21, 130, 24, 20), dtypes.bfloat16, causal, masked)


@pytest.mark.parametrize(
    ("builds", "dtype"),
    [
        (_in_tiles(False), dtypes.float32),
        (_in_tiles(True), dtypes.float32),
        (_on_units(MmaTile(2, 1, 32, 2, rows_in_registers=True)), dtypes.float16),
        (_on_units(MmaTile(2, 1, 16, 1, rows_in_registers=False, terms=3)), dtypes.float32),
    ],
    ids=["local tiles", "local tiles, fused dq", "mma tiles", "mma tiles, bf16x3"],
)
def test_results_are_written_in_place(device: Any, rng: Any, builds: tuple[Build, Build], dtype: Any) -> None:
    chosen = Harness(_Chosen(device.backend, *builds))
    q, k, v, g = (rng.uniform(-1, 1, (2, 2, n, 16)).astype(dtype.numpy) for n in (15, 14, 14, 15))
    params = {"causal": True, "scale": 0.3}
    check_placed(chosen, "attention", [q, k, v, None], **params)
    out, lse = OPS["attention"].reference(*(x.astype(np.float64) for x in (q, k, v)), None, **params)
    # The saved result is read in place too.
    saved = np.ascontiguousarray(out.astype(dtype.numpy).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    check_placed(chosen, "attention_grad", [g, q, k, v, None, saved, lse.astype(np.float32)], **params)


@pytest.mark.parametrize(
    ("tile", "lengths", "dtype", "masked"),
    [
        (DecodeTile(4, 4, 8, 4, 64, 8), (1, 300, 24, 16), dtypes.float32, "float"),
        (DecodeTile(1, 8, 4, 2, 32, 8), (3, 100, 5, 7), dtypes.float16, "bool"),
        (DecodeTile(4, 1, 1, 8, 512, 1), (2, 40, 16, 8), dtypes.float64, ""),
        (DecodeTile(4, 32, 4, 2, 64, 8), (3, 150, 128, 120), dtypes.float32, "float"),
    ],
    ids=str,
)
def test_decoding(device: Any, rng: Any, tile: DecodeTile, lengths: Any, dtype: Any, masked: str) -> None:
    """Few queries, with a head in one group or split among several."""
    _compare(device, rng, (partial(decode.forward, chosen=tile), None), lengths, dtype, True, masked)


@pytest.mark.parametrize(
    ("builds", "dtype"),
    [
        (_in_tiles(False), dtypes.float32),
        (_in_tiles(True), dtypes.float32),
        (
            (
                partial(local_tiles.forward, candidates=(LocalTile(16, 16, 2, 2),)),
                partial(local_tiles.backward, candidates=(LocalTile(16, 16, 2, 2, slice=16),)),
            ),
            dtypes.float32,
        ),
        (_on_units(MmaTile(2, 1, 32, 2, rows_in_registers=True)), dtypes.float16),
        (_on_units(MmaTile(2, 1, 16, 1, rows_in_registers=False, terms=3)), dtypes.float32),
        ((partial(decode.forward, chosen=DecodeTile(4, 4, 8, 4, 64, 8)), None), dtypes.float32),
    ],
    ids=["local tiles", "local tiles, fused dq", "sliced tiles", "mma tiles", "mma tiles, bf16x3", "decoding"],
)
def test_rows_with_one_large_number_added(
    device: Any, rng: Any, builds: tuple[Build, Build | None], dtype: Any
) -> None:
    lengths = (4, 70, 16, 16) if builds[1] is None else (20, 33, 16, 16)
    _compare(device, rng, builds, lengths, dtype, False, "large")
