"""Split-K decisions: the shared rule, and its use in products, convolutions, reductions and attention.

split_decisions.json has inputs and decisions that were measured to be fast: a change of them must be deliberate.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polyhal.backends.common.launching.split_k import SplitK, split_count, split_k
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.opencl_c.lowering.attention import cpu as attention_cpu
from polyhal.backends.opencl_c.lowering.attention import decode, split_keys
from polyhal.backends.opencl_c.lowering.conv import tile_configs as conv
from polyhal.backends.opencl_c.lowering.gemm import split_k as gemm
from polyhal.backends.opencl_c.lowering.reduction import fused
from polyhal.backends.opencl_c.lowering.reduction import split as reduction
from polyhal.backends.wgpu.lowering.gemm import split_k as wgpu

DECISIONS: dict[str, list[list[Any]]] = json.loads(Path(__file__).with_name("split_decisions.json").read_text("utf-8"))
MIB = 1 << 20


def test_splits_occupy_the_workers() -> None:
    assert split_count(3, 16) == 5
    assert split_count(3, 16, fill=True) == 6
    assert split_count(32, 16) == 1
    assert split_count(1, 16, 4, 9) == 4
    assert split_count(1, 16, 0) == 1


def test_the_terms_of_splits_cover_all_terms() -> None:
    for terms in (1, 63, 64, 65, 1000, 4096):
        for workers in (1, 7, 132):
            for multiple in (1, 16, 64):
                split = split_k(terms, 2, workers, 32, min_terms=8, multiple=multiple)
                assert split.terms % multiple == 0
                assert (split.splits - 1) * split.terms < terms <= split.splits * split.terms
    assert split_k(1000, 1, 4, min_terms=100, multiple=64) == SplitK(4, 256)


def runtime(cpu: bool, units: int) -> Any:
    features = SimpleNamespace(
        cpu=cpu,
        compute_units=units,
        group_size=256,
        vector_width=16 if cpu else 4,
        static_local_memory=48 << 10,
        tensor_cores=False,
        max_group_size=1024,
        max_binding=128 * MIB,
        quirks=SimpleNamespace(loop_limit=0),
    )
    untuned = SimpleNamespace(choose=lambda family, kind, default: default)
    return SimpleNamespace(features=features, tuning=untuned)


def _gemm(groups: int, tiles: int, k: int, depth: int) -> tuple[int, ...]:
    split = gemm.choose(groups, tiles, k, depth)
    return split.splits, split.terms


def _conv(units: int, tiles: int, terms: int) -> tuple[int, ...]:
    tile_config: Any = SimpleNamespace(depth=16)
    return conv.split_tile(runtime(False, units), tile_config, tiles, terms)


def _conv_wgmma(cpu: bool, units: int, bf16_terms: int, *shape_and_splittable: Any) -> tuple[int, ...]:
    *shape, splittable = shape_and_splittable
    tile, splits, terms = conv.choose_wgmma_tile(runtime(cpu, units), bf16_terms, tuple(shape), splittable=splittable)
    return tile.warpgroups, tile.columns, tile.depth, tile.stages, splits, terms


def _reduction(cpu: bool, units: int, k0: int, k1: int, r0: int, r1: int, rows: bool, workers: int) -> tuple[int, ...]:
    axes = Axes(((k0, k1 * r0 * r1), (k1, r0 * r1 if rows else 1)), ((r0, r1), (r1, 1 if rows else k1)))
    return (reduction.split_terms(runtime(cpu, units), axes, *([workers] if workers else [])),)


def _fused(cpu: bool, units: int, kept: list[int], reduced: list[int], by_rows: bool) -> tuple[int, ...]:
    return fused._split(runtime(cpu, units), fused._Space(tuple(kept), tuple(reduced), (), by_rows))


def _attention_cpu(units: int, count: int, t: int, s: int, d: int) -> tuple[int, ...]:
    call: Any = SimpleNamespace(shape=SimpleNamespace(count=count, t=t, s=s, d=d, e=d), itemsize=4)
    tile: Any = SimpleNamespace(queries=32, padded=lambda n: -(-n // 16) * 16)
    return (attention_cpu._splits(runtime(True, units), call, tile),)


def _attention_decode(cpu: bool, units: int, count: int, s: int) -> tuple[int, ...]:
    call: Any = SimpleNamespace(shape=SimpleNamespace(count=count, s=s))
    tile = decode.DecodeTile(4, 4, 1, 8, min_keys=512, groups_per_unit=1)
    if not cpu:
        tile = decode.DecodeTile(4, 4, 16, 8, min_keys=256, groups_per_unit=8)
    multiple = tile.keys_per_step * tile.key_lanes
    split = split_keys.choose(runtime(cpu, units), call, count, tile.groups_per_unit, tile.min_keys, multiple)
    return split.splits, split.terms


def _wgpu_gemm(cpu: bool, groups: int, count: int, m: int, n: int, k: int, small: bool) -> tuple[int, ...]:
    product: Any = SimpleNamespace(count=count, m=m, n=n, k=k, sum_dtype=SimpleNamespace(itemsize=4))
    split = wgpu.choose(runtime(cpu, 8), product, groups, blocks=small)
    return split.splits, split.terms


CHOICES: dict[str, tuple[int, Callable[..., tuple[int, ...]]]] = {
    "gemm": (4, _gemm),
    "conv": (3, _conv),
    "conv_wgmma": (8, _conv_wgmma),
    "reduction": (8, _reduction),
    "fused": (5, _fused),
    "attention_cpu": (5, _attention_cpu),
    "attention_decode": (4, _attention_decode),
    "wgpu_gemm": (7, _wgpu_gemm),
}


@pytest.mark.parametrize("family", CHOICES)
def test_decisions_are_as_recorded(family: str) -> None:
    inputs, choose = CHOICES[family]
    for row in DECISIONS[family]:
        assert choose(*row[:inputs]) == tuple(row[inputs:]), row
