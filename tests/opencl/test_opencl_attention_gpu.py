"""Attention's kernels for GPUs, in small tiles, on any device: those for matrix units as their twins in plain C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check, check_placed

from polyhal.backends.opencl.lowering.attention import arguments, decode, mma
from polyhal.backends.opencl.lowering.attention import tiles as local_tiles
from polyhal.backends.opencl.lowering.attention.arguments import Attention
from polyhal.backends.opencl.lowering.attention.decode import Decoding
from polyhal.backends.opencl.lowering.attention.mma import Fragments, Kernels
from polyhal.backends.opencl.lowering.attention.tiles import Tiles
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined, Launch

Build = Callable[[Runtime, Attention], Launch | Declined]


class _Chosen:
    """A backend that answers every call of attention with one kernel."""

    def __init__(self, backend: Any, forward: Build, backward: Build | None) -> None:
        self._backend = backend
        self._builds = {"attention": forward, "attention_grad": backward}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def lower(self, op: str, inputs: Any, outputs: Any, params: Mapping[str, Any]) -> Launch | Declined:
        call = (
            arguments.forward(inputs, outputs, params)
            if op == "attention"
            else arguments.backward(inputs, outputs, params)
        )
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
    """Two heads, forward and, where there is a kernel, backward."""
    t, s, d, e = lengths
    chosen = Harness(_Chosen(device.backend, *builds))
    keep = rng.random((t, s)) < 0.7
    keep[0] = False
    mask = {"": None, "bool": keep, "float": rng.uniform(-1, 1, (2, 1, s))}[masked]
    inputs = [rng.uniform(-2, 2, (2, t, d)), rng.uniform(-2, 2, (2, s, d)), rng.uniform(-1, 1, (2, s, e)), mask]
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
    ("tiles", "lengths", "dtype", "causal", "masked"),
    [
        (Tiles(32, 32, 4, 4), (40, 70, 24, 20), dtypes.float32, True, ""),
        (Tiles(16, 16, 2, 2), (20, 9, 7, 13), dtypes.bfloat16, True, "float"),
        (Tiles(16, 16, 2, 2), (18, 33, 16, 16), dtypes.float64, True, ""),
    ],
    ids=str,
)
def test_tiles_in_local_memory(
    device: Any, rng: Any, tiles: Tiles, lengths: Any, dtype: Any, causal: bool, masked: str
) -> None:
    builds = (
        partial(local_tiles.forward, candidates=(tiles,)), partial(local_tiles.backward, candidates=(tiles,))
    )  # fmt: skip
    _compare(device, rng, builds, lengths, dtype, causal, masked)


def _in_tiles(adding: bool) -> tuple[Build, Build]:
    tiles = (Tiles(16, 16, 4, 4),)
    return (
        partial(local_tiles.forward, candidates=tiles),
        partial(local_tiles.backward, candidates=tiles, adding=adding),
    )


def test_tiles_that_add_in_memory(device: Any, rng: Any) -> None:
    _compare(device, rng, _in_tiles(True), (37, 20, 24, 20), dtypes.float32, True, "")


def _on_units(fragments: Fragments, together: bool = True) -> tuple[Build, Build]:
    kernels = Kernels(fragments, fragments, fragments, together)
    return partial(mma.forward, kernels=kernels), partial(mma.backward, kernels=kernels)


@pytest.mark.parametrize(
    ("fragments", "lengths", "dtype", "causal", "masked"),
    [
        (Fragments(2, 1, 32, 2, held=True), (40, 70, 16, 16), dtypes.float16, True, ""),
        (Fragments(1, 2, 16, 1, held=False), (35, 33, 13, 16), dtypes.bfloat16, True, "float"),
        (Fragments(2, 1, 16, 1, held=False, parts=3), (35, 33, 13, 16), dtypes.float32, True, ""),
    ],
    ids=str,
)
def test_fragments(
    device: Any, rng: Any, fragments: Fragments, lengths: Any, dtype: Any, causal: bool, masked: str
) -> None:
    """Float32 in parts is as exact as float32."""
    _compare(device, rng, _on_units(fragments), lengths, dtype, causal, masked)


@pytest.mark.parametrize(("parts", "dtype", "masked"), [(1, dtypes.float16, "bool"), (3, dtypes.float32, "")], ids=str)
def test_fragments_of_hopper(device: Any, rng: Any, parts: int, dtype: Any, masked: str) -> None:
    builds = _on_units(Fragments(4, 1, 64, 1, held=False, wgmma=True, parts=parts), together=parts == 1)
    _compare(device, rng, builds, (70, 80, 24, 40), dtype, True, masked)


@pytest.mark.parametrize(
    ("builds", "dtype"),
    [
        (_in_tiles(False), dtypes.float32),
        (_in_tiles(True), dtypes.float32),
        (_on_units(Fragments(2, 1, 32, 2, held=True)), dtypes.float16),
        (_on_units(Fragments(2, 1, 16, 1, held=False, parts=3)), dtypes.float32),
    ],
    ids=["tiles", "tiles that add", "fragments", "fragments of parts"],
)
def test_results_lie_where_they_are_wanted(device: Any, rng: Any, builds: tuple[Build, Build], dtype: Any) -> None:
    chosen = Harness(_Chosen(device.backend, *builds))
    q, k, v, g = (rng.uniform(-1, 1, (2, 2, n, 16)).astype(dtype.numpy) for n in (15, 14, 14, 15))
    params = {"causal": True, "scale": 0.3}
    check_placed(chosen, "attention", [q, k, v, None], **params)
    out, lse = OPS["attention"].reference(*(x.astype(np.float64) for x in (q, k, v)), None, **params)
    # The saved result, too, is read where the forward pass has put it.
    saved = np.ascontiguousarray(out.astype(dtype.numpy).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    check_placed(chosen, "attention_grad", [g, q, k, v, None, saved, lse.astype(np.float32)], **params)


@pytest.mark.parametrize(
    ("decoding", "lengths", "dtype", "masked"),
    [
        (Decoding(4, 4, 8, 4, 64, 8), (1, 300, 24, 16), dtypes.float32, "float"),
        (Decoding(1, 8, 4, 2, 32, 8), (3, 100, 5, 7), dtypes.float16, "bool"),
        (Decoding(4, 1, 1, 8, 512, 1), (2, 40, 16, 8), dtypes.float64, ""),
    ],
    ids=str,
)
def test_decoding(device: Any, rng: Any, decoding: Decoding, lengths: Any, dtype: Any, masked: str) -> None:
    """Few queries: a head in one group, and shared out among several."""
    _compare(device, rng, (partial(decode.forward, chosen=decoding), None), lengths, dtype, True, masked)
