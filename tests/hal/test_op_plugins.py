"""Ops of installed packages: found by name, imported when used, and rejected or reported if they are invalid."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import polyhal
from polyhal.hal.compile import op_plugins as discovery
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.op_plugins import OpPlugins
from polyhal.hal.core.plugins.entry_points import PluginError
from polyhal.hal.errors import CorruptFileError
from polyhal.hal.hookspecs import OPS_GROUP, OpSpec, hookimpl
from polyhal.hal.ops import OPS
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.system.diagnostics.explain_op import explain


class Packages:
    """Fake packages, each a module with an entry point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.points: list[EntryPoint] = []

    def module(self, name: str, **attributes: Any) -> None:
        module = types.ModuleType(name)
        vars(module).update(attributes)
        self._monkeypatch.setitem(sys.modules, name, module)

    def add(self, name: str, specs: Any) -> None:
        self.module(name, polyhal_ops=hookimpl(lambda: specs))
        self.points.append(EntryPoint(name, name, OPS_GROUP))

    def found(self) -> OpPlugins:
        known = OpPlugins(self.points)
        self._monkeypatch.setattr(discovery, "op_plugins", lambda: known)
        self._monkeypatch.setattr("polyhal.ops.op_plugins", lambda: known)
        return known


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Packages:
    """Start without packages; remove ops declared by a test after it."""
    import polyhal.ops  # noqa: F401

    monkeypatch.setattr(OPS, "_ops", dict(OPS._ops))
    return Packages(monkeypatch)


def doubled(name: str = "doubled") -> Any:
    return elementwise(name, lambda x: x * 2, "`2 x`.", decompose=lambda x: x + x)


def test_an_op_is_declared_when_it_is_first_used(packages: Packages) -> None:
    imported = []

    class Declarations(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            imported.append(name)
            return doubled(name)

    packages.add("maker", [OpSpec("doubled", "maker_declarations:doubled")])
    sys.modules["maker_declarations"] = Declarations("maker_declarations")
    try:
        known = packages.found()
        assert dir(polyhal.ops) == ["doubled"]
        assert not imported
        assert "doubled" not in OPS
        x = polyhal.tensor([1.0, 2.0], device="numpy", requires_grad=True)
        y = polyhal.ops.doubled(x)
        y.sum().backward()
        assert y.tolist() == [2, 4]
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2]
        assert polyhal.ops.doubled is polyhal.ops.doubled
        assert imported == ["doubled"]
        assert known.failures == []
        assert known.of_package("maker") == ["doubled"]
    finally:
        del sys.modules["maker_declarations"]


def test_explain_and_stored_graphs_find_ops_by_name(packages: Packages) -> None:
    text = "%0: float32[3]\non numpy\n%1 = doubled(%0): float32[3]\nreturn %1\n"
    packages.found()
    with pytest.raises(CorruptFileError, match="there is no op 'doubled'"):
        parse(text)
    with pytest.raises(KeyError, match="unknown op 'doubled'"):
        explain("doubled", "numpy")
    packages.add("maker", [OpSpec("doubled", "maker_declarations:doubled")])
    packages.found()
    packages.module("maker_declarations", doubled=doubled())
    assert "doubled(float32[3])" in explain("doubled", "numpy", (3,))
    assert parse(text).nodes[0].op is OPS["doubled"]


def test_a_package_may_declare_a_kernel(packages: Packages) -> None:
    kernel = polyhal.kernel("tripled", numpy=lambda x: x * 3)
    packages.add("maker", [OpSpec("tripled", kernel)])
    packages.found()
    assert polyhal.ops.tripled(polyhal.tensor([1.0], device="numpy")).tolist() == [3]
    assert OPS["tripled"] is kernel.op


def test_two_packages_with_an_op_of_one_name(packages: Packages) -> None:
    """The first keeps the name; the error names both."""
    first, second = polyhal.kernel("gate", numpy=lambda x: x + 1), polyhal.kernel("gate", numpy=lambda x: x + 2)
    packages.add("first_maker", [OpSpec("gate", first)])
    packages.add("second_maker", [OpSpec("gate", second), OpSpec("other", polyhal.kernel("other", numpy=lambda x: x))])
    known = packages.found()
    (failure,) = known.failures
    assert "second_maker" in failure.reason
    assert "first_maker" in failure.reason
    assert "uninstall" in failure.fix
    assert polyhal.ops.gate is first
    assert known.names() == ["gate", "other"]


def test_two_modules_that_declare_one_name_are_both_named(packages: Packages) -> None:
    doubled()
    with pytest.raises(ValueError, match=r"'doubled' is declared twice: by .*test_op_plugins and by .*test_op_plugins"):
        doubled()


@pytest.mark.parametrize("name", ["softmax", "relu", "std_mean"])
def test_the_name_of_a_built_in_function_is_rejected(packages: Packages, name: str) -> None:
    packages.add("maker", [OpSpec(name, "maker:f")])
    (failure,) = packages.found().failures
    assert f"declares an op {name!r}, which is an op of polyhal" in failure.reason


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        (3, "polyhal_ops returned 3; expected a sequence of OpSpec"),
        (["gate"], "polyhal_ops returned 'gate' in its sequence; expected an OpSpec"),
        ([OpSpec("a gate", "maker:f")], "the name of an op is 'a gate'; expected an identifier"),
        ([OpSpec("gate", "maker")], "op 'gate': function is 'maker'; expected the function of an op"),
    ],
)
def test_a_hook_that_returns_something_else(packages: Packages, specs: Any, reason: str) -> None:
    packages.add("maker", specs)
    (failure,) = packages.found().failures
    assert reason in failure.reason
    assert failure.fix == "update or uninstall maker"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("nowhere_to_be_found:f", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("maker:absent", "AttributeError: module 'maker' has no attribute 'absent'"),
        ("maker:polyhal_ops", "expected the function of the op gate"),
    ],
)
def test_an_op_that_cannot_be_declared(packages: Packages, target: str, reason: str) -> None:
    """It is reported once, with a fix, and does not affect other ops."""
    packages.add("maker", [OpSpec("gate", target), OpSpec("other", polyhal.kernel("other", numpy=lambda x: x))])
    known = packages.found()
    for _ in range(2):
        with pytest.raises(AttributeError, match=r"the op 'gate' cannot be declared: .*update or uninstall maker"):
            _ = polyhal.ops.gate
    with pytest.raises(PluginError):
        known.function("gate")
    assert [op.name for op in known.load()] == ["other"]
    (failure,) = known.failures
    assert reason in failure.reason


def test_a_name_that_no_package_declares(packages: Packages) -> None:
    packages.add("maker", [OpSpec("swiglu", "maker:f")])
    packages.found()
    with pytest.raises(AttributeError, match="no installed package declares an op 'swigl'; did you mean swiglu"):
        _ = polyhal.ops.swigl
    assert not hasattr(polyhal.ops, "__path__")


def test_a_package_that_is_disabled(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_DISABLE", "maker")
    packages.add("maker", [OpSpec("gate", "maker:f")])
    known = packages.found()
    assert known.names() == []
    assert known.failures[0].reason == "disabled by POLYHAL_DISABLE"
