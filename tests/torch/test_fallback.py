"""Ops without a kernel: decompositions, the CPU with one warning, and refusals."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import polyhal.torch
from polyhal.hal.device import Device
from polyhal.hal.errors import FallbackRefusedError
from polyhal.torch.fallback import fallback
from polyhal.torch.kernels import overload
from polyhal.torch.registration import TABLE, add_entry, cuts_gradients


@pytest.fixture(scope="module")
def only_cpu() -> Iterator[Any]:
    """Register ops with kernels only for the CPU."""
    library = torch.library.Library("polyhal_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("double_(Tensor(a!) x) -> Tensor(a!)")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("double_", lambda x: x.mul_(2), "CPU")
    yield torch.ops.polyhal_tests
    library._destroy()


def test_the_cpu_warns_once_and_is_counted(torch_device: str, only_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")
    x = torch.ones(3, device=torch_device)
    with pytest.warns(
        UserWarning, match=r"polyhal_tests\.twice\.default has no kernel .* 24 bytes were copied"
    ) as caught:
        y = only_cpu.twice(x)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        only_cpu.twice(x)
    assert y.tolist() == [2, 2, 2]
    assert polyhal.torch.report().on_cpu == {"polyhal_tests.twice.default": (2, 48)}


def test_the_cpu_can_be_forbidden(torch_device: str, only_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    with pytest.raises(NotImplementedError, match=r"polyhal_tests\.twice.*POLYHAL_FALLBACK"):
        only_cpu.twice(torch.ones(3, device=torch_device))


def test_writes_on_the_cpu_are_copied_back(torch_device: str, only_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    x = torch.ones(4, device=torch_device)
    view = x[::2]
    assert only_cpu.double_(view) is view
    assert x.tolist() == [2, 1, 2, 1]


def test_a_decomposition_that_leads_back_to_its_op_ends_on_the_cpu(
    torch_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    op = torch.ops.aten.flip.default
    assert fallback(op, torch.arange(3, device=torch_device), [0]).tolist() == [2, 1, 0]
    assert fallback(op, torch.arange(3, device=torch_device), [0]).tolist() == [2, 1, 0]


def test_forms_that_lead_to_each_other_end_on_the_cpu(torch_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`i0` is computed by `i0.out`, and PyTorch's decomposition of `i0` calls `i0`."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    out = torch.empty(0, device=torch_device)
    torch.ops.aten.i0.out(torch.zeros(3, device=torch_device), out=out)
    assert out.tolist() == pytest.approx([1, 1, 1])


def test_decompositions_stay_on_the_device(torch_device: str) -> None:
    x, y = torch.randn(4), torch.randn(4)
    found = fallback(torch.ops.aten.huber_loss.default, x.to(torch_device), y.to(torch_device))
    torch.testing.assert_close(found.cpu(), torch.nn.functional.huber_loss(x, y))
    report = polyhal.torch.report()
    assert report.decomposed
    assert not report.on_cpu


def test_kernels_that_would_cut_gradients_are_refused() -> None:
    assert cuts_gradients(torch.ops.aten.square.default)
    assert not cuts_gradients(torch.ops.aten.mul.Tensor)
    for name in TABLE:
        op = overload(name)
        if op is None:
            continue
        if cuts_gradients(op):
            assert not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "PrivateUse1"), name


def test_an_overload_has_one_entry() -> None:
    with pytest.raises(ValueError, match=r"aten::relu\.default is in the table twice"):
        add_entry("relu", TABLE["relu.default"])


def test_every_entry_is_an_overload_of_pytorch() -> None:
    missing = [n for n in TABLE if not hasattr(getattr(torch.ops.aten, n.split(".")[0], None), n.split(".")[1])]
    assert set(missing) <= {"cholesky.default"}  # not in PyTorch 2.15


@pytest.fixture
def simulated() -> Iterator[str]:
    """Return the name of PyTorch's device on a simulated GPU with an empty report; LAPACK ops run on its host."""
    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device.opened("sim", Device("sim").backend))
    polyhal.torch.reset_report()
    yield "polyhal"
    polyhal.set_default_device(previous)


@pytest.mark.parametrize(
    "run",
    [
        lambda f: f,
        functools.partial(polyhal.torch.jit, strict=True),
        functools.partial(torch.compile, backend="polyhal"),
    ],
    ids=["eager", "recorded", "compiled"],
)
def test_work_in_numpy_warns_once_and_is_counted(
    run: Callable[[Any], Any], simulated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")
    x = torch.eye(4, device=simulated) * 4
    f = run(lambda x: torch.linalg.cholesky_ex(x)[0] + 1)
    with pytest.warns(UserWarning, match=r"\[cholesky_factor\] runs on the host and moves 132 bytes"):
        f(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert f(x).cpu().tolist() == (torch.eye(4) * 2 + 1).tolist()
    report = polyhal.torch.report()
    assert report.on_host == {"cholesky_factor": (4, 4 * 132)}
    assert "polyhal.cholesky_factor: 4 times in NumPy on the host, 528 bytes moved" in str(report)
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    # Recorded steps raise Polyhal's own errors.
    with pytest.raises((NotImplementedError, FallbackRefusedError), match=r"\[cholesky_factor\].*POLYHAL_FALLBACK"):
        f(x)
