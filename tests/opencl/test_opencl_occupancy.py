"""Occupancy: the model against published tables and vendors' compilers, its choices, and results with chosen tiles.

occupancy_figures.json has the compilers' figures for the chosen tiles. `make vendors` recomputes and compares them.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import Any

import occupancy_figures
import pytest
from native_harness import as_gpu
from native_ops import check

from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.lowering.attention import tiles
from polyhal.backends.opencl_c.lowering.attention.tiles import LocalTile
from polyhal.backends.opencl_c.lowering.conv.tile_configs import TileConfig
from polyhal.backends.opencl_c.lowering.gemm.sliced_k import SlicedTile
from polyhal.backends.opencl_c.lowering.gemm.tiles import SimtTile
from polyhal.backends.opencl_c.occupancy import Architecture, Usage
from polyhal.backends.opencl_c.profiles import vendor_profile

FIGURES: dict[str, dict[str, dict[str, int]]] = json.loads(occupancy_figures.PATH.read_text(encoding="utf-8"))
ARCHITECTURES = {a.name: a for profile in vendor_profile.shipped() for a in profile.architectures}
GCN, RDNA, GEN = (ARCHITECTURES[name] for name in ("gcn", "rdna", "gen"))
AMD = ("rx480", "rx6800")
UNIT = 64 << 10
"""Bytes of a compute unit's local memory."""
NARROW = re.compile(
    "uhd630 (attention/sliced_tiles_grad .*ROWS_ARE_KEYS=True|conv/implicit_gemm DTYPE=(float16|float32 ROWS=32))"
    "|attention/decode .*(ROWS=4|KEY_VECTORS=2)"
)
"""Kernels that Intel's compiler compiles to eight lanes, because a work-item needs over 64 registers."""
_ERROR = {"gemm": 12, "conv": 12, "attention": 32}
"""Maximum error of a prediction, in registers: the compiler uses them for addresses, whose number depends on layouts."""


def architecture(key: str) -> Architecture:
    """Return the architecture of a described device."""
    found = OpenCLDescribedBackend(description.load(key)).features.architecture
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("registers", "waves"),
    [
        (24, 10),
        (28, 9),
        (32, 8),
        (36, 7),
        (40, 6),
        (48, 5),
        (64, 4),
        (84, 3),
        (85, 2),
        (128, 2),
        (129, 1),
        (256, 1),
        (257, 0),
    ],
)
def test_waves_of_gcn_by_registers(registers: int, waves: int) -> None:
    """Compare with the table of registers and wavefronts in AMD's OpenCL optimization guide."""
    assert GCN.waves(Usage(registers, 256, 1024), UNIT) == waves


def test_local_memory_limits_waves() -> None:
    # Two groups of 256 work-items are eight waves of 64 lanes for four SIMD units.
    assert GCN.waves(Usage(24, 256, 32 << 10), UNIT) == 2
    assert GCN.waves(Usage(24, 256, 33 << 10), UNIT) == 1
    assert GCN.waves(Usage(24, 64, 64 << 10), UNIT) == 0
    assert RDNA.waves(Usage(64, 256, 8 << 10), UNIT) == 16
    assert RDNA.waves(Usage(128, 256, 8 << 10), UNIT) == 8
    assert GEN.waves(Usage(56, 256, 8 << 10), UNIT) == 7
    assert GEN.waves(Usage(57, 256, 8 << 10), UNIT) == 3


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("mi250", "gcn"),
        ("rx480", "gcn"),
        ("vega20", "gcn"),
        ("rx6800", "rdna"),
        ("rx7900", "rdna"),
        ("rx9070", "rdna"),
        ("strix", "rdna"),
        ("uhd630", "gen"),
        ("irisxe", "gen"),
        ("a770", "gen"),
        ("lunarlake", "gen"),
        ("m1", None),
        ("malig78", None),
        ("adreno730", None),
        ("bare12", None),
    ],
)
def test_devices_have_their_architecture(key: str, name: str | None) -> None:
    found = OpenCLDescribedBackend(description.load(key)).features.architecture
    assert (found and found.name) == name


def test_the_first_candidate_with_enough_waves_is_chosen() -> None:
    usages = {"large": 200, "medium": 120, "small": 60}
    chosen = [
        occupancy.choose(a, UNIT, list(usages), lambda name: Usage(usages[name], 256, 8 << 10))
        for a in (None, GCN, RDNA, GEN)
    ]
    # No candidate reaches Intel's four waves: the one without spills has the most.
    assert chosen == ["large", "medium", "medium", "small"]


@pytest.mark.parametrize("wrong", ["lanes = 0", "lanes = 'many'", "waves = 3"])
def test_an_invalid_architecture_is_refused(wrong: str) -> None:
    numbers = ("lanes", "most_registers", "register_file", "granularity", "simds", "most_waves", "aim")
    rest = "\n".join(f"{n} = 8" for n in numbers if not wrong.startswith(n))
    text = f"[match]\nkinds = ['gpu']\n[[architectures]]\nname = 'mine'\nsource = ''\n{rest}\n"
    if not wrong.startswith("waves"):
        vendor_profile.parse("mine", f"{text}lanes = 8")
    with pytest.raises(ValueError, match="profile mine"):
        vendor_profile.parse("mine", f"{text}{wrong}")


@pytest.mark.parametrize("key", occupancy_figures.DEVICES)
def test_every_chosen_tile_leaves_enough_waves(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_device = architecture(key)
    choose, chosen = occupancy.choose, []

    def watched(found: Any, memory: int, candidates: Any, usage: Any) -> Any:
        best = choose(found, memory, candidates, usage)
        chosen.append((best, usage(best), found.waves(usage(best), memory)))
        return best

    monkeypatch.setattr(occupancy, "choose", watched)
    occupancy_figures.lowered(key)
    assert {SimtTile, TileConfig, LocalTile} <= {type(tile) for tile, _, _ in chosen}
    for tile, _, waves in chosen:
        assert waves >= of_device.aim, tile


@pytest.mark.parametrize("key", AMD)
def test_the_model_agrees_with_the_compiler(key: str) -> None:
    of_device, units = architecture(key), 1
    if of_device == RDNA:  # the compiler counts the local memory of two compute units, a launch can only use one
        of_device, units = replace(of_device, simds=2 * of_device.simds), 2
    for name, figures in FIGURES[key].items():
        measured = Usage(figures["registers"], figures["group"], figures["local_bytes"])
        # The compiler rounds up waves that SIMD units do not divide.
        assert figures["waves"] - 1 <= of_device.waves(measured, units * UNIT) <= figures["waves"], name
        predicted = _predicted(name)
        if predicted is not None:
            assert abs(predicted.registers - figures["registers"]) <= _ERROR[name.partition("/")[0]], name
            assert predicted.items == figures["group"]
            assert abs(predicted.local_memory - figures["local_bytes"]) <= 8 * 128, name


def _predicted(name: str) -> Usage | None:
    file, *defined = name.split()
    d = {k: v for k, _, v in (part.partition("=") for part in defined)}
    if file == "gemm/tiles":
        return SimtTile(int(d["QUAD_ROWS"]), int(d["QUAD_COLUMNS"]), int(d["DEPTH"]), 2).usage
    if file == "gemm/sliced_k":
        return SlicedTile(int(d["ROWS"]), int(d["COLUMNS"]), int(d["TERMS"])).usage
    if file.startswith("conv/"):
        sizes = (int(d[n]) for n in ("ROWS", "COLUMNS", "ROW_BLOCKS"))
        return TileConfig(*sizes, 1, int(d["DEPTH"]), item_width=int(d["ITEM_WIDTH"])).usage
    if file.startswith("attention/") and "tiles" in file:
        tile = LocalTile(*(int(d[n]) for n in ("ROWS", "COLUMNS", "ITEM_ROWS", "ITEM_COLUMNS")), int(d.get("SLICE", 0)))
        head, backward = int(d["FEATURES"]), file.endswith("_grad")
        elements = tiles.backward_elements if backward else tiles.forward_elements
        accumulated = 2 * head if d.get("ROWS_ARE_KEYS") == "True" else head
        return Usage(tile.all_registers(head, accumulated), tile.group, 4 * elements(tile, head, head))
    return None


@pytest.mark.parametrize("key", occupancy_figures.DEVICES)
def test_compiled_kernels_reach_the_target_occupancy(key: str) -> None:
    assert FIGURES[key]
    of_device = architecture(key)
    for name, figures in FIGURES[key].items():
        assert figures["spilled_registers"] == figures["private_bytes"] == 0, name
        if key in AMD:
            assert figures["waves"] >= of_device.aim, name
        else:
            assert figures["lanes"] >= (8 if NARROW.search(f"{key} {name}") else 16), name


def test_the_page_has_the_figures() -> None:
    assert occupancy_figures.PAGE.read_text(encoding="utf-8") == occupancy_figures.page()


@pytest.mark.skipif(not os.environ.get("POLYHAL_TEST_ALL"), reason="needs the compilers of vendors: make vendors")
@pytest.mark.parametrize("key", occupancy_figures.DEVICES)
def test_stored_occupancy_figures_agree_with_the_compilers(key: str) -> None:
    found = occupancy_figures.figures(key)
    assert found.keys() == FIGURES[key].keys()
    for name, figures in found.items():
        stored = FIGURES[key][name]
        for most in ("spilled_registers", "private_bytes"):
            assert figures[most] <= stored[most], name
        for least in ("waves", "lanes"):
            assert figures.get(least) is None or figures[least] >= stored[least], name


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_results_with_the_tiles_of_an_architecture(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    runtime = device.backend.runtime
    facts = as_gpu(runtime.features, architecture=ARCHITECTURES[name])
    monkeypatch.setattr(runtime, "features", replace(facts, compute_capability=0))
    left, right = rng.uniform(-1, 1, (130, 2100)), rng.uniform(-1, 1, (2100, 70))
    check(device, "matmul", [left, right], ulps=64)
    check(device, "matmul", [rng.uniform(-1, 1, (37, 90)), rng.uniform(-1, 1, (90, 40))], ulps=16)
    x, weight = rng.uniform(-1, 1, (1, 5, 9, 8)), rng.uniform(-1, 1, (35, 5, 3, 3))
    params: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    check(device, "conv2d", [x, weight, rng.uniform(-1, 1, 35)], ulps=16, **params)
    slope = rng.uniform(-1, 1, (1, 35, 9, 8))
    check(device, "conv2d_weight_grad", [slope, x], ulps=16, kernel=(3, 3), **params)
