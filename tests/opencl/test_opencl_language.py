"""Versions of OpenCL C: 1.2, newer ones for kernels with sub-groups, and fallback kernels."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import run
from test_opencl_profiles import record

from polyhal.backends.opencl import capabilities
from polyhal.backends.opencl.capabilities import features
from polyhal.backends.opencl_c import language
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.hal import dtypes
from polyhal.hal.errors import KernelBuildError

SHUFFLES = "cl_khr_subgroups cl_khr_subgroup_shuffle"


def device(version: str, c_version: str, *listed: tuple[int, int], extensions: str = SHUFFLES) -> Any:
    """Return a graphics card in pyopencl's form; `listed` are the versions of OpenCL C."""
    card, _ = record("amd")
    card.version, card.opencl_c_version, card.extensions = f"OpenCL {version} ", f"OpenCL C {c_version} ", extensions
    card.opencl_c_all_versions = [SimpleNamespace(version=major << 22 | minor << 12) for major, minor in listed]
    return card


@pytest.mark.parametrize(
    ("card", "newest"),
    [
        (device("1.2", "1.2"), ""),
        (device("2.0", "2.0"), "2.0"),
        (device("2.1", "1.2"), ""),
        (device("3.0", "1.2", (1, 0), (1, 1), (1, 2)), ""),
        (device("3.0", "1.2", (1, 2), (2, 0)), "2.0"),
        (device("3.0", "1.2", (1, 2), (2, 0), (3, 0)), "3.0"),
        (device("3.0", "3.0 with a vendor's words"), "3.0"),
    ],
)
def test_sub_groups_need_a_language_that_has_them(card: Any, newest: str) -> None:
    found = features(card, record("amd")[1])
    assert found.language == newest
    assert found.subgroups == bool(newest)
    without = device("3.0", "3.0", extensions="cl_khr_subgroups")
    assert not features(without, record("amd")[1]).subgroups


def test_only_programs_that_need_it_are_built_as_a_newer_version() -> None:
    plain = language.options({"EXCHANGE": 0, "GROUP": 1}, "3.0")
    assert language.flags(plain) == ["-cl-std=CL1.2", "-w"]
    newer = language.options({"EXCHANGE": 1, "GROUP": 64}, "3.0")
    assert sorted(language.flags((*newer, "-cl-other"))) == ["-cl-other", "-cl-std=CL3.0", "-w"]


@pytest.fixture
def grouped(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reopen the device, treated as a GPU with sub-groups, so that it has not built anything."""
    fresh = device.with_quirk()
    runtime = fresh.backend.runtime
    newest = runtime.features.language or "3.0"
    group = min(64, runtime.features.max_group_size)
    runtime.features = as_gpu(runtime.features, group_size=group, subgroups=True, language=newest)
    return fresh


def summed(device: Any, x: np.ndarray) -> np.ndarray:
    """Sum through the core method, which has no op-level fallback."""
    out = device.empty(dtypes.float32, (x.shape[0],))
    device.backend.reduce("sum", device.upload(x), out)
    return device.download(out)


def test_sub_groups_are_compiled_in_their_language(grouped: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers without them use local memory instead, also in core methods, with one warning."""
    runtime = grouped.backend.runtime
    languages = []
    build = runtime.programs.build

    def noted(label: str, text: str, options: Any = (), target: Any = None) -> Any:
        standards = [flag for flag in language.flags(options) if flag.startswith("-cl-std")]
        languages.append(("#define EXCHANGE 1\n" in text, *standards))
        return build(label, text, options, target)

    monkeypatch.setattr(runtime.programs, "build", noted)
    x = rng.standard_normal((3, 5000)).astype(np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        for columns in (5000, 4000):
            exact = x[:, :columns].astype(np.float64).sum(1)
            # A chain has fewer than 5000 / 64 + 64 roundings, of partial sums below the sum of magnitudes.
            bound = np.finfo(np.float32).eps * (5000 / 64 + 64) * np.abs(x).sum(1)
            assert np.all(np.abs(summed(grouped, x[:, :columns]) - exact) <= bound)
    assert {std for newer, std in languages if newer} == {f"-cl-std=CL{runtime.features.language}"}
    assert {std for newer, std in languages if not newer} <= {"-cl-std=CL1.2"}
    told = [w for w in caught if "kernels use local memory instead" in str(w.message)]
    assert len(told) == (0 if runtime.features.subgroups else 1)
    assert exchange(runtime, 4, 64, 64) == runtime.features.subgroups


def test_a_kernel_without_sub_groups_that_does_not_build_is_an_error(
    grouped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(label: str, *given: Any) -> Any:
        raise KernelBuildError(f"{label} is refused")

    monkeypatch.setattr(grouped.backend.runtime.programs, "build", refused)
    with pytest.raises(KernelBuildError, match=r"reduction/rows.cl is refused"):
        summed(grouped, np.ones((3, 5000), np.float32))
    assert grouped.backend.runtime.features.subgroups


@pytest.mark.parametrize("kind", ["cas", "ext"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32], ids=lambda d: d.name)
def test_rows_are_added_atomically_in_either_way(
    grouped: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, kind: str, dtype: dtypes.DType
) -> None:
    """Integers below 2^24 have exact sums in any order."""
    runtime = grouped.backend.runtime
    if kind == "ext" and runtime.features.float_atomics != "ext":
        pytest.skip("the driver has no atomic addition of floats")
    runtime.features = replace(runtime.features, float_atomics=kind)
    flags: list[str] = []
    launch = runtime._launch
    monkeypatch.setattr(
        runtime,
        "_launch",
        lambda request, *rest: flags.extend(language.flags(request.options)) or launch(request, *rest),
    )
    rows, index = rng.integers(-99, 99, (3000, 7)), rng.integers(0, 5, 3000)
    exact = np.zeros((5, 7), np.int64)
    np.add.at(exact, index, rows)
    (added,) = run(grouped, "scatter_rows", [rows.astype(dtype.numpy), index], rows=5, deterministic=False)
    np.testing.assert_array_equal(added, exact)
    assert any("CL3.0" in f or "CL2.0" in f for f in flags) == (kind == "ext" and dtype is dtypes.float32)


def test_float_atomics_need_a_language_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device must also support addition: it may only load and store."""
    atomics = "cl_ext_float_atomics"
    kind = record("amd")[1]
    for answer in (None, b"\x01\0\0\0\0\0\0\0"):
        monkeypatch.setattr(capabilities, "raw_info", lambda *_, answer=answer: answer)
        assert features(device("3.0", "3.0", extensions=atomics), kind).float_atomics == "cas"
    monkeypatch.setattr(capabilities, "raw_info", lambda *_: b"\x03\0\0\0\0\0\0\0")
    assert features(device("1.2", "1.2", extensions=atomics), kind).float_atomics == "cas"
    assert features(device("3.0", "3.0", extensions=atomics), kind).float_atomics == "ext"
    assert features(device("3.0", "3.0", extensions=f"{atomics} cl_nv_compiler_options"), kind).float_atomics == "ptx"
