"""The pytest plug-in of the conformance kit: options, and one test per case and device.

    pytest --pyargs polyhal.hal.testing --polyhal-device=opencl:1

A backend's own test suite may instead import `test_conformance` from `polyhal.hal.testing.test_conformance`, set the
devices in its `conftest.py`, and implement the hook `pytest_polyhal_expectations` there.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.testing.kit.expectations import Expectations

DEVICES = pytest.StashKey[list[str]]()
"""Devices set by a `conftest.py`, checked if the command line names none."""
OPS_UNDER_TEST = pytest.StashKey[list[Any]]()
"""Ops set by a `conftest.py`, the only ones checked if the command line names none: see `--polyhal-ops`. They may also be
functions of ops, such as kernels of `polyhal.kernel`."""
EVERY_CASE = "polyhal_every_case"
"""Marker of tests that run in full if `--polyhal-sample` requests a sample."""
_FREEZE_EVERY = 100
_FINISHED = itertools.count(1)


class KitHookSpecs:
    """Hooks that a `conftest.py` or a plug-in of a backend may implement."""

    @pytest.hookspec
    def pytest_polyhal_expectations(self, device: str) -> Expectations | None:
        """Return the known gaps of a device; None for a device of another backend."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the kit's own hooks to pytest."""
    pluginmanager.add_hookspecs(KitHookSpecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{EVERY_CASE}: --polyhal-sample keeps all cases of the test")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options to pytest's command line."""
    group = parser.getgroup("polyhal", "Polyhal conformance kit")
    group.addoption(
        "--polyhal-device",
        action="append",
        default=[],
        metavar="NAME",
        help="device to check; comma-separated or repeated",
    )
    group.addoption(
        "--polyhal-ops",
        action="append",
        default=[],
        metavar="NAME",
        help="check only these: an op, or an installed package with ops; comma-separated or repeated",
    )
    group.addoption(
        "--polyhal-small", action="store_true", help="only calls with few elements, for kernel interpreters"
    )
    group.addoption(
        "--polyhal-full", action="store_true", help="every input in every memory layout instead of a rotation"
    )
    group.addoption(
        "--polyhal-few-shapes",
        action="store_true",
        help="every op on few shared shapes, for runtimes that compile a program per shape",
    )
    group.addoption(
        "--polyhal-sample",
        type=int,
        default=1,
        metavar="N",
        help="run one of N consecutive cases of a kind or test, and the whole contract; default: 1",
    )
    group.addoption(
        "--polyhal-seed",
        default="",
        metavar="TEXT",
        help="selects the cases of --polyhal-sample, for instance the name of a commit",
    )
    group.addoption(
        "--polyhal-expectations", type=Path, metavar="FILE", help="TOML file of unsupported cases and expected failures"
    )


def devices(config: pytest.Config) -> list[str]:
    """Return the names of the devices to check, from the command line, else from a `conftest.py`."""
    return _named(config, "polyhal_device") or config.stash.get(DEVICES, [])


def _named(config: pytest.Config, option: str) -> list[str]:
    return [n.strip() for text in config.getoption(option) for n in text.split(",") if n.strip()]


def _ops(config: pytest.Config) -> list[Any] | None:
    """Return the only ops to check, from the command line, else from a `conftest.py`; None for all ops and the contract."""
    from polyhal.hal.compile.op_plugins import declared, op_plugins
    from polyhal.hal.core.plugins.entry_points import PluginError

    chosen: list[Any] = _named(config, "polyhal_ops") or config.stash.get(OPS_UNDER_TEST, [])
    out: list[Any] = []
    for item in chosen:
        names = op_plugins().of_package(item) if isinstance(item, str) else []
        try:
            found = [declared(n) for n in names] or [declared(item) if isinstance(item, str) else item.op]
        except PluginError as error:
            raise pytest.UsageError(f"{item}: {error}; {error.fix}") from error
        if None in found:
            reasons = "".join(f"\n  {f.source}: {f.reason}" for f in op_plugins().failures)
            raise pytest.UsageError(f"{item!r} is neither an op nor an installed package with ops{reasons}")
        out += found
    return out or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests by device and case."""
    if not {"polyhal_case", "polyhal_device"} & set(metafunc.fixturenames):
        return
    names = devices(metafunc.config)
    if not names:
        raise pytest.UsageError("name a device to check: --polyhal-device=numpy")
    os.environ.update(POLYHAL_FALLBACK="declared", POLYHAL_STRICT="1")
    os.environ.setdefault("POLYHAL_BUILD_AHEAD", "0")  # tests use all cores anyway
    opened = [(name, _open(name)) for name in names]
    if "polyhal_case" not in metafunc.fixturenames:
        metafunc.parametrize("polyhal_device", [d for _, d in opened], ids=names)
        return
    from polyhal.hal.testing.kit.cases import cases

    ops = _ops(metafunc.config)
    scope = _scope(metafunc.config)
    parameters = []
    for name, device in opened:
        known = _expectations(metafunc.config, name)
        for case in cases(device, scope, ops=ops):
            marks: list[Any] = []
            if reason := known.is_unsupported(case.id):
                marks.append(pytest.mark.skip(reason=f"unsupported: {reason}"))
            elif reason := known.is_expected_failure(case.id):
                marks.append(pytest.mark.xfail(reason=reason, strict=True))
            parameters.append(pytest.param(case, id=f"{name}-{case.id}", marks=marks))
    metafunc.parametrize("polyhal_case", parameters)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests that other options select, deselect those outside the requested sample."""
    one_in: int = config.getoption("polyhal_sample")
    if one_in < 1:
        raise pytest.UsageError(f"--polyhal-sample={one_in}: expected a number of at least 1")
    if one_in == 1:
        return
    from polyhal.hal.testing.kit.sampling import sample

    selected = sample([(_group(item), item.nodeid) for item in items], one_in, config.getoption("polyhal_seed"))
    dropped = [item for item in items if item.nodeid not in selected]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item.nodeid in selected]


def _group(item: pytest.Item) -> str:
    """Return the device and kind of a case of the kit, otherwise the test of a case. Checks of the contract are alone."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("polyhal_case") if callspec else None
    if item.get_closest_marker(EVERY_CASE) or (case is not None and case.kind == "contract"):
        return item.nodeid
    return item.nodeid.partition("[")[0] if case is None else f"{case.device} {case.kind}"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect the cases without repeated garbage collections of existing cases, which take a third of the time."""
    if not devices(session.config):
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Exclude objects left alive by a case from later garbage collections."""
    if "polyhal_case" in getattr(item, "fixturenames", ()):
        freeze_garbage()


def freeze_garbage() -> None:
    """After every hundredth call, exempt all live objects from garbage collection.

    A device keeps a plan per call, and a plan is hundreds of objects: scanning all of them repeatedly takes longer than
    many cases.
    """
    if next(_FINISHED) % _FREEZE_EVERY == 0:
        gc.collect()
        gc.freeze()


def _open(name: str) -> Device:
    from polyhal.hal.device import Device
    from polyhal.hal.errors import DeviceUnavailableError
    from polyhal.hal.testing.kit.isolation import isolated

    try:
        return isolated(Device(name))
    except DeviceUnavailableError as error:
        raise pytest.UsageError(str(error)) from error


def _scope(config: pytest.Config) -> Any:
    from polyhal.hal.testing.kit.scope import Scope

    options = (config.getoption(f"polyhal_{name}") for name in ("small", "full", "few_shapes"))
    return Scope(*options)


def _expectations(config: pytest.Config, name: str) -> Expectations:
    from polyhal.hal.testing.kit.expectations import Expectations, read

    known = Expectations()
    for expectations in config.hook.pytest_polyhal_expectations(device=name):
        known = known | (expectations or Expectations())
    path = config.getoption("polyhal_expectations")
    return known | read(path) if path else known


@pytest.fixture
def polyhal_scope(request: pytest.FixtureRequest) -> Any:
    """Return the `Scope` of the command line."""
    return _scope(request.config)
