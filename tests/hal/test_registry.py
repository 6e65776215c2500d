"""Discovery of devices: broken plug-ins of every kind, the order of preference, and errors for names."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from device_fakes import fake, info, with_backends

from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.hal.capabilities import DeviceInfo, DeviceType, UnusableDevice
from polyhal.hal.core.plugins.entry_points import Failure
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP, BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION
from polyhal.hal.system.discovery.registry import Registry, registry

NUMPY_POINT = EntryPoint("numpy", "polyhal.backends.numpy", ENTRY_POINT_GROUP)


@pytest.fixture(autouse=True)
def _no_chosen_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let registries choose the default device."""
    monkeypatch.delenv("POLYHAL_DEVICE", raising=False)


def point(name: str, monkeypatch: pytest.MonkeyPatch, hook: Callable[..., Any] | None, **attributes: Any) -> EntryPoint:
    """Return an entry point of a generated module."""
    module = types.ModuleType(f"plugin_{name}")
    if hook is not None:
        module.polyhal_backends = hookimpl(hook)  # type: ignore[attr-defined]
    for key, value in attributes.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return EntryPoint(name, module.__name__, ENTRY_POINT_GROUP)


# --- broken plug-ins ------------------------------------------------------------------------------------------------


def _raises() -> Sequence[BackendSpec]:
    raise RuntimeError("licence expired")


def _wrong_version() -> Sequence[BackendSpec]:
    return [BackendSpec("old", probe="x:y", create="x:z", api_version=99)]


def _no_version() -> Sequence[BackendSpec]:
    return [BackendSpec("old", probe="x:y", create="x:z")]


def _no_spec() -> Sequence[Any]:
    return ["opencl"]


def _duplicate() -> Sequence[BackendSpec]:
    return [BackendSpec("numpy", probe="x:y", create="x:z", api_version=API_VERSION)]


def _one() -> BackendSpec:
    return BackendSpec("one", probe="x:y", create="x:z", api_version=API_VERSION)


def _nothing() -> None:
    return None


def _number() -> int:
    return 3


def _takes_an_argument(surprise: object) -> Sequence[BackendSpec]:
    return []


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (_raises, "RuntimeError: licence expired"),
        (_wrong_version, "contract version 99"),
        (_no_version, "implements contract version 1; this Polyhal requires 2"),
        (_no_spec, "expected a BackendSpec"),
        (_duplicate, "'numpy' is already registered"),
        (_takes_an_argument, "surprise"),
        (_one, "returned BackendSpec(name='one'"),
        (_nothing, "returned None"),
        (_number, "returned 3; expected a sequence"),
        (None, "no function polyhal_backends"),
    ],
    ids=[
        "raises",
        "wrong version",
        "no version",
        "no spec",
        "duplicate name",
        "wrong signature",
        "one",
        "none",
        "number",
        "no hook",
    ],
)
def test_a_broken_plugin_is_recorded_and_does_not_affect_others(
    hook: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Registry(
        [
            NUMPY_POINT,
            point("broken", monkeypatch, hook),
            point("good", monkeypatch, lambda: [fake("good", info("a", DeviceType.CPU))]),
        ]
    )
    assert set(found.backends) == {"numpy", "good"}
    (failure,) = found.failures
    assert "broken" in failure.source
    assert reason in failure.reason
    assert found.open("numpy").name == "numpy"


@pytest.mark.parametrize(
    "value", ["module_that_does_not_exist", "polyhal.backends.numpy:missing", "polyhal.hal.layout:ALIGNMENT"]
)
def test_an_entry_point_that_cannot_be_loaded_is_recorded(value: str) -> None:
    found = Registry([EntryPoint("lost", value, ENTRY_POINT_GROUP), NUMPY_POINT])
    assert set(found.backends) == {"numpy"}
    assert value in found.failures[0].source


def test_a_module_that_raises_at_import_is_recorded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising_plugin.py").write_text("raise ImportError('libvendor.so.3: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Registry([EntryPoint("raising", "raising_plugin", ENTRY_POINT_GROUP), NUMPY_POINT])
    assert "libvendor.so.3" in found.failures[0].reason
    assert found.open(None).name == "numpy"


def test_a_probe_that_raises_is_recorded_once() -> None:
    def probe() -> Sequence[DeviceInfo]:
        raise OSError("no driver; install one with apt")

    found = with_backends(
        BackendSpec("broken", probe=probe, create="x:y", api_version=API_VERSION),
        fake("good", info("a", DeviceType.CPU, selector="")),
    )
    assert found.open(None).name == "good"
    assert found.open("good").name == "good"
    assert [f.reason for f in found.failures] == ["OSError: no driver; install one with apt"]
    with pytest.raises(DeviceUnavailableError, match="no driver; install one with apt"):
        found.open("broken")


def test_an_unusable_device_is_recorded_and_does_not_affect_others() -> None:
    left_out = UnusableDevice("Old card", "it supports OpenCL 1.0", "update the driver")
    good = fake("good", info("a", DeviceType.CPU, selector=""))
    mixed = with_backends(replace(good, probe=lambda: [left_out, *good.probe()]))  # type: ignore[operator]
    assert mixed.open(None).name == "good"
    expected = Failure("good device Old card", "left out: it supports OpenCL 1.0", "update the driver")
    assert mixed.failures == [expected]
    alone = with_backends(replace(good, probe=lambda: [left_out]))
    with pytest.raises(DeviceUnavailableError, match=r"good device Old card: left out: it supports OpenCL 1\.0"):
        alone.open("good")


def test_probe_and_create_may_be_strings() -> None:
    found = with_backends(
        BackendSpec(
            "numpy",
            probe="polyhal.backends.numpy.backend:probe",
            create="polyhal.backends.numpy.backend:create",
            api_version=API_VERSION,
        )
    )
    assert found.open("numpy").info.backend == "numpy"
    lost = with_backends(
        BackendSpec("lost", probe="polyhal.nowhere:probe", create="polyhal.nowhere:create", api_version=API_VERSION)
    )
    with pytest.raises(DeviceUnavailableError, match="ModuleNotFoundError"):
        lost.open("lost")


def test_disabled_backends_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_DISABLE", "numpy")
    found = Registry([NUMPY_POINT])
    assert not found.backends
    assert "POLYHAL_DISABLE" in found.failures[0].reason


def test_built_in_backends_are_found_by_entry_point() -> None:
    assert {"numpy", "opencl", "null"} <= set(registry().backends)
    assert any("polyhal" in distribution for _, distribution in registry().sources)


# --- the default ----------------------------------------------------------------------------------------------------

GPU, IGPU, ACCELERATOR, CPU = DeviceType.GPU, DeviceType.INTEGRATED_GPU, DeviceType.ACCELERATOR, DeviceType.CPU


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([fake("a", info("x", CPU)), fake("b", info("y", GPU))], "b:0"),
        ([fake("a", info("x", IGPU), priority=90), fake("b", info("y", GPU))], "b:0"),
        ([fake("a", info("x", CPU), priority=90), fake("b", info("y", IGPU))], "b:0"),
        ([fake("a", info("x", CPU), priority=90), fake("b", info("y", ACCELERATOR))], "b:0"),
        ([fake("a", info("x", ACCELERATOR), priority=90), fake("b", info("y", GPU))], "b:0"),
        ([fake("a", info("x", GPU), priority=10), fake("b", info("y", GPU), priority=20)], "b:0"),
        ([fake("a", info("x", GPU, 1 << 30), info("y", GPU, 1 << 33, "1"))], "a:1"),
        ([fake("a", info("x", GPU, 1 << 40), priority=10), fake("b", info("y", GPU, 1 << 30), priority=20)], "b:0"),
        ([fake("a", info("x", GPU, 64 << 20), priority=90), fake("b", info("y", CPU))], "b:0"),
        ([fake("a", info("x", GPU, 0), priority=90), fake("b", info("y", CPU))], "a:0"),
        ([fake("a", info("x", GPU, lacks="64-bit integers")), fake("b", info("y", CPU), priority=-100)], "b:0"),
        ([fake("a", info("x", ACCELERATOR), priority=-200), fake("b", info("y", CPU), priority=-100)], "b:0"),
        ([fake("numpy", info("x", CPU, 1 << 50, ""), priority=-100), fake("b", info("y", CPU, 1 << 30))], "b:0"),
        ([fake("a", info("x", GPU), hidden=True), fake("b", info("y", CPU))], "b:0"),
    ],
    ids=[
        "gpu over cpu",
        "gpu over integrated",
        "integrated over cpu",
        "accelerator over cpu",
        "gpu over accelerator",
        "priority",
        "memory",
        "priority over memory",
        "too little memory",
        "memory unknown",
        "lacks something",
        "negative priority over type",
        "numpy last",
        "hidden never",
    ],
)
def test_default_order(specs: list[BackendSpec], expected: str) -> None:
    for ordered in (specs, specs[::-1]):
        assert with_backends(*ordered).open(None).name == expected


def test_a_default_that_cannot_be_opened_is_replaced_by_the_next() -> None:
    found = with_backends(fake("a", info("x", GPU), refuse=["0"]), fake("b", info("y", CPU)))
    assert found.open(None).name == "b:0"
    assert "the driver refused device 0" in found.failures[-1].reason


def test_a_default_that_is_a_cpu_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_backends(fake("a", info("x", CPU), info("y", CPU, selector="1")), fake("b", info("z", GPU)))
    best = found.open("cpu")
    other = next(n for n in ("a:0", "a:1") if n != best.name)
    found.set_default(other)
    assert found.open("cpu").name == other
    assert found.open("gpu").name == "b:0"
    found.set_default(None)
    assert found.open("cpu") is best
    monkeypatch.setenv("POLYHAL_DEVICE", other)
    found.set_default(None)
    assert found.open("cpu").name == other
    monkeypatch.setenv("POLYHAL_DEVICE", "cpu")
    found.set_default(None)
    assert found.open(None) is best


def test_a_forked_child_has_the_default_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another device would be taken silently where the driver of the parent's does not survive the fork."""
    parent, child = (with_backends(fake("a", info("x", CPU)), fake("b", info("y", GPU))) for _ in range(2))
    child.inherit(parent)
    assert child.open(None).name == parent.open(None).name == "b:0"
    parent.set_default("a:0")
    child = with_backends(fake("a", info("x", CPU), refuse=["0"]), fake("b", info("y", GPU)))
    child.inherit(parent)
    with pytest.raises(DeviceUnavailableError, match="'a:0' is not available"):
        child.open(None)
    monkeypatch.setenv("POLYHAL_DEVICE", "b")
    with pytest.raises(DeviceUnavailableError, match="'a:0' is not available"):
        child.open(None)
    child.set_default(None)
    assert child.open(None).name == "b:0"


def test_the_device_that_a_parent_did_not_choose_gives_way_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [fake("a", info("x", CPU)), fake("b", info("y", GPU))]
    parent, child, grandchild = (with_backends(*specs) for _ in range(3))
    assert parent.open(None).name == "b:0"
    child.inherit(parent)
    grandchild.inherit(child)
    monkeypatch.setenv("POLYHAL_DEVICE", "a")
    assert child.open(None).name == "a:0"
    monkeypatch.delenv("POLYHAL_DEVICE")
    assert grandchild.open(None).name == "b:0"


def test_the_default_is_explained() -> None:
    found = with_backends(fake("a", info("Big card", GPU)), fake("b", info("y", CPU)))
    not_measured = "(not measured: POLYHAL_MEASURE_TIMEOUT is 0)"
    assert found.explain_default() == f"a:0 (Big card): the only GPU of 2 devices {not_measured}"
    assert "only device" in with_backends(fake("b", info("y", CPU))).explain_default()


def test_a_default_that_reports_another_name_is_explained() -> None:
    listed, opened = (replace(info("x", CPU, selector=s), backend="a") for s in ("0", "first"))
    found = with_backends(
        BackendSpec("a", lambda: [listed], lambda selector: NumpyBackend(opened), api_version=API_VERSION)
    )
    assert found.explain_default() == "a:first (x)"


# --- names ----------------------------------------------------------------------------------------------------------


def test_polyhal_device_selects_the_default_or_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [fake("a", info("x", GPU)), fake("b", info("y", CPU))]
    monkeypatch.setenv("POLYHAL_DEVICE", "b")
    assert with_backends(*specs).open(None).name == "b:0"
    monkeypatch.setenv("POLYHAL_DEVICE", "b:7")
    with pytest.raises(DeviceUnavailableError) as caught:
        with_backends(*specs).open(None)
    text = str(caught.value)
    assert "'b:7' is not available" in text
    assert "found a:0: x (gpu)" in text
    assert "polyhal doctor" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu", "a:1"),
        ("gpu:1", "a:0"),
        ("cpu", "b:0"),
        ("cpu:0", "b:0"),
        ("fast", "a:1"),
        ("fast:0", "a:0"),
        ("a", "a:1"),
        ("a:0", "a:0"),
        ("b", "b:0"),
    ],
)
def test_synonyms_and_aliases(name: str, expected: str) -> None:
    found = with_backends(
        fake("a", info("x", IGPU), info("z", GPU, selector="1"), aliases=("fast",)), fake("b", info("y", CPU))
    )
    device = found.open(name)
    assert device.name == expected
    assert found.open(expected) is device


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "rocm", "xpu"])
def test_names_of_other_frameworks_raise_with_a_hint(name: str) -> None:
    with pytest.raises(DeviceUnavailableError, match='did you mean "gpu"'):
        with_backends(fake("b", info("y", CPU))).open(name)


@pytest.mark.parametrize("name", ["gpu", "gpu:0", "gpu:3", "opencl:0", "vulkan", ""])
def test_an_unavailable_name_never_falls_back_to_a_cpu(name: str) -> None:
    found = with_backends(fake("b", info("y", CPU)))
    with pytest.raises(DeviceUnavailableError, match="is not available"):
        found.open(name)


def test_a_gpu_that_fails_to_open_never_falls_back_to_a_cpu() -> None:
    found = with_backends(fake("a", info("x", GPU), refuse=["0"]), fake("b", info("y", CPU)))
    for name in ("gpu", "a", "a:0"):
        with pytest.raises(DeviceUnavailableError, match="the driver refused device 0"):
            found.open(name)


def test_cl_is_opencl() -> None:
    assert set(registry().backends["opencl"].aliases) >= {"cl", "ocl"}


def test_devices_are_opened_once() -> None:
    assert Device("numpy") is Device("numpy")
    assert Device("numpy") is Device("np")
    assert Device(Device("numpy")) is Device("numpy")
    assert Device("numpy:no_f64") is not Device("numpy")


def test_devices_pickle_by_name() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(Device("numpy:no_f64"))) is Device("numpy:no_f64")
    assert str(Device("numpy")) == "numpy"
    assert repr(Device("numpy")) == "Device('numpy')"
