"""Calibration: measuring a simulated device like a real one recovers its profile."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from polyhal.backends.sim.convolution_fit import fit_convolutions
from polyhal.backends.sim.costs import kernel_cost
from polyhal.backends.sim.timing import KernelCost, kernel_ns
from polyhal.hal import dtypes
from polyhal.hal.core.hardware.profile import DeviceProfile, load_profile
from polyhal.hal.layout import contiguous

_ROUNDING = 2e-3
"""Relative tolerance: figures have four digits, kernels take whole nanoseconds, and launch times are as exact as tiny
products."""
_TILES = 0.06
"""Maximum loss of a GPU's products by a short last wave: 2 ^ 12 tiles on 132 units are 15.5 of 16 waves."""


_MEASURE = """
import sys
from pathlib import Path
from polyhal.calibration import measure, profile_text
from polyhal.hal.device import Device
for name in sys.argv[2:]:
    text = profile_text(measure(Device(f"sim:{name},compute=off")))
    Path(sys.argv[1], f"{name}.toml").write_text(text, encoding="utf-8")
"""


def calibrated(folder: Path, *names: str) -> list[DeviceProfile]:
    """Return the profiles measured on simulated devices, in a process whose virtual time no other test advances."""
    subprocess.run([sys.executable, "-c", _MEASURE, folder, *names], check=True, timeout=120)
    return [load_profile(str(folder / f"{name}.toml")) for name in names]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[DeviceProfile, DeviceProfile]]:
    """Return profiles of a processor, a GPU and a plain GPU, each with its calibrated profile."""
    names = ("cpu_2core", "h200", "teaching")
    found = calibrated(tmp_path_factory.mktemp("profiles"), *names)
    return {name: (load_profile(name), profile) for name, profile in zip(names, found, strict=True)}


Profiles = dict[str, tuple[DeviceProfile, DeviceProfile]]


def test_the_driver_is_found(profiles: Profiles) -> None:
    for given, found in profiles.values():
        tiny = 50  # a product of 8 x 8 matrices is also a kernel
        assert found.launch_ns == pytest.approx(given.launch_ns, abs=tiny)
        assert found.submit_ns == given.submit_ns
        assert found.replay_ns == given.replay_ns
        assert found.sync_ns == pytest.approx(given.sync_ns, abs=tiny)
        assert found.link.bandwidth == pytest.approx(given.link.bandwidth, rel=_ROUNDING)
        assert found.link.latency_ns == pytest.approx(given.link.latency_ns, abs=tiny)


def test_memory_is_found(profiles: Profiles) -> None:
    for given, found in profiles.values():
        rates = [p.bandwidth * p.efficiency["memory"] for p in (given, found)]
        assert rates[1] == pytest.approx(rates[0], rel=_ROUNDING)
        assert (found.cache > 0) == (given.cache > 0)
        if given.cache:
            assert found.cache_bandwidth == pytest.approx(given.cache_bandwidth, rel=_ROUNDING)
            assert given.cache / 2**0.5 <= found.cache <= given.cache * 2**0.5, "sizes of sums are powers of two"


def test_rates_of_a_processor_are_found(profiles: Profiles) -> None:
    """Rates of memory-bound ops are excluded."""
    given, found = profiles["cpu_2core"]
    kinds = found.efficiency.keys() - {"memory", "optimizer", "reduction", "elementwise"}
    plain = {k for k in kinds if k.rpartition("_")[2] not in ("float16", "bfloat16", "float64")}
    assert plain >= {
        "default",
        "contraction",
        "fused",
        "attention",
        "gradient_attention",
        "norm",
        "gradient_norm",
        "random",
        "loss",
        "pooling",
        "gradient_overlapping_pooling",
        "convolution",
        "input_gradient_strided_convolution",
    }
    for kind in plain:
        for dtype in (dtypes.float32, dtypes.float64, dtypes.bfloat16):
            assert found.flops_per_second(dtype, kind) == pytest.approx(
                given.flops_per_second(dtype, kind), rel=_ROUNDING
            )
    assert found.half_row == given.half_row
    assert found.packing == pytest.approx(given.packing, rel=_ROUNDING)


def test_rates_of_a_gpu_are_found(profiles: Profiles) -> None:
    given, found = profiles["h200"]
    for kind in ("contraction", "fused", "convolution", "weight_gradient_strided_convolution", "attention"):
        for dtype in (dtypes.float32, dtypes.float64)[: 1 if kind == "fused" else 2]:  # others are taken from products
            assert found.flops_per_second(dtype, kind) == pytest.approx(given.flops_per_second(dtype, kind), rel=_TILES)


def _costs() -> list[KernelCost]:
    """Return costs of ops in sizes that calibration does not measure."""
    x, y, w = ((contiguous(dtypes.float32, shape)) for shape in ((9, 70, 30, 30), (9, 50, 30, 30), (50, 70, 3, 3)))
    stride: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1)}
    pool = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    pooled, row = contiguous(dtypes.float32, (9, 70, 15, 15)), contiguous(dtypes.float32, (630, 900))
    a, b, out = (contiguous(dtypes.float32, shape) for shape in ((700, 90), (90, 1100), (700, 1100)))
    return [
        kernel_cost("conv2d", (x, w), (y,), stride),
        kernel_cost("conv2d_weight_grad", (y, x), (w,), {**stride, "kernel": (3, 3)}),
        kernel_cost("conv2d_input_grad", (y, w), (x,), stride),
        kernel_cost("max_pool2d", (x,), (pooled,), pool),
        kernel_cost("max_pool2d_grad", (pooled, x), (x,), pool),
        kernel_cost("matmul", (a, b), (out,), {}),
        kernel_cost("add", (row, row), (row,), {}),
        kernel_cost("layer_norm", (row,), (row,), {}),
        kernel_cost("gelu", (row,), (row,), {}),
        kernel_cost("adam_step", (row,) * 4, (row,) * 3, {}),
    ]


@pytest.mark.parametrize("name", ["cpu_2core", "teaching"])
def test_both_profiles_predict_the_same_times(profiles: Profiles, name: str) -> None:
    given, found = profiles[name]
    for cost in _costs():
        assert kernel_ns(found, cost) == pytest.approx(kernel_ns(given, cost), rel=5e-3), cost.family


def test_each_figure_has_a_comment_on_its_measurement(tmp_path: Path) -> None:
    calibrated(tmp_path, "irisxe")
    lines = (tmp_path / "irisxe.toml").read_text(encoding="utf-8").splitlines()
    assert "Measured by `polyhal sim calibrate` on 2" in lines[1]
    assert lines[0].endswith("driver simulator.")
    start, end = lines.index("[performance.efficiency]"), lines.index("memory = 1")
    figures = [i for i in range(start, end) if " = " in lines[i]]
    assert len(figures) > 15
    assert all("GFLOP/s" in lines[i - 1] and lines[i - 1].startswith("# ") for i in figures)
    tables = tomllib.loads("\n".join(lines))
    assert tables.keys() == {"title", "vendor", "type", "performance", "links"}


def test_convolutions_without_packing_are_recognized() -> None:
    costs = [
        KernelCost("convolution", dtypes.float32, flops, 1, row=row, packed=(("image", image), ("weights", weights)))
        for flops, row, image, weights in (
            (10**9, 8, 10**6, 10**6),
            (10**8, 16, 10**7, 10**5),
            (10**9, 64, 10**6, 10**7),
            (3 * 10**8, 32, 10**5, 10**6),
            (2 * 10**9, 16, 3 * 10**6, 10**6),
        )
    ]
    seconds = [2e-6 + c.flops * (1 + 4 / c.row) / 1e12 for c in costs]
    fit = fit_convolutions(costs, seconds, 2e-6)
    assert fit.packing == {}
    assert fit.half_row == 4
    assert fit.rates == pytest.approx({"convolution": 1e12})


def test_a_sweep_without_convolutions_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="no convolution was measured"):
        fit_convolutions([], [], 0.0)
