"""Programs of ops for large matrices, and programs with a check, on a device with kernels for small matrices and panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hard_matrices
import matrix_residuals
import numpy as np
import pytest

import polyhal
from polyhal import Tensor, linalg
from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import HOST_WORK
from polyhal.hal.device import Device
from polyhal.hal.errors import LinAlgError
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.ops.linear_algebra.decompositions.blocks import PANEL, SMALL
from polyhal.hal.ops.lowering import OnDevice
from polyhal.hal.protocol import Declined, Launch

_PANELS = ("lu_factors", "householder_factors")


class PanelBackend(NumpyBackend):
    """NumPy's device, with kernels for the matrices that a GPU factors by one kernel each, and no others."""

    def lower(self, op: str, inputs: Any, outputs: tuple[Spec, ...], params: Any) -> Launch | Declined:
        if OPS[op].strategy(OnDevice) is not None:
            matrix: Spec = inputs[0]
            panel = op in _PANELS and matrix.shape[-1] <= PANEL
            if params.get("check") or (max(matrix.shape[-2:]) > SMALL and not panel):
                return Declined("the matrices are large")
        return super().lower(op, inputs, outputs, params)


@pytest.fixture
def panels() -> Iterator[Device]:
    """Return a GPU with kernels for small matrices and panels. The test must not work on the host."""
    backend = PanelBackend(replace(Device("numpy").backend.info, type=DeviceType.GPU))
    before = HOST_WORK.counts()
    yield Device.opened("panels", backend)
    assert HOST_WORK.since(before) == {}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


CASES = [
    ((100, 100), "ill-conditioned"),
    ((2, 97, 97), "graded"),
    ((130, 70), "graded"),
    ((70, 130), "normal"),
    ((3, 80, 20), "tiny"),
    ((20, 80), "normal"),
]


@pytest.mark.parametrize(("shape", "kind"), CASES, ids=str)
def test_factors_of_large_matrices(panels: Device, rng: Any, shape: tuple[int, ...], kind: str) -> None:
    a = hard_matrices.draw(rng, kind, shape)
    x = polyhal.tensor(np.swapaxes(a, -2, -1).copy(), device=panels).mT
    packed, pivots, info = linalg.lu_factor_ex(x)
    assert not info.numpy().any()
    assert matrix_residuals.of_lu(a, packed.numpy(), pivots.numpy()) < matrix_residuals.LIMIT
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(x, mode)
        assert matrix_residuals.of_qr(a, q.numpy(), r.numpy()) < matrix_residuals.LIMIT
    np.testing.assert_array_equal(linalg.qr(x, "r").R.numpy(), r.numpy()[..., : min(shape[-2:]), :])


@pytest.mark.parametrize("n", [65, 97])
@pytest.mark.parametrize("upper", [False, True])
def test_symmetric_and_triangular_matrices(panels: Device, rng: Any, n: int, upper: bool) -> None:
    a = hard_matrices.positive_definite(rng, "ill-conditioned", (2, n, n))
    x = polyhal.tensor(a, device=panels)
    factor = linalg.cholesky(x, upper=upper)
    assert matrix_residuals.of_cholesky(a, factor.numpy(), upper) < matrix_residuals.LIMIT
    b = rng.normal(size=(3, 2, n, 5)).astype(np.float32)
    y = linalg.solve_triangular(factor, polyhal.tensor(b, device=panels), upper=upper).numpy()
    assert matrix_residuals.of_solution(factor.numpy(), y, b) < matrix_residuals.LIMIT


@pytest.mark.parametrize("batch", [((), ()), ((2,), ()), ((), (3,)), ((2, 1), (1, 3)), ((0,), (0,))], ids=str)
@pytest.mark.parametrize("n", [3, 100])
def test_solutions_of_broadcast_batches(panels: Device, rng: Any, n: int, batch: tuple[Any, Any]) -> None:
    a, b = rng.normal(size=(*batch[0], n, n)), rng.normal(size=(*batch[1], n, 4))
    x = linalg.solve(polyhal.tensor(a, device=panels), polyhal.tensor(b, device=panels)).numpy()
    assert matrix_residuals.of_solution(a, x, b) < 8 * matrix_residuals.LIMIT


def test_functions_of_large_matrices(panels: Device, rng: Any) -> None:
    a = rng.normal(size=(2, 90, 90)) / 9
    x = polyhal.tensor(a, device=panels)
    np.testing.assert_allclose(linalg.inv(x).numpy(), np.linalg.inv(a), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(linalg.det(x).numpy(), np.linalg.det(a), rtol=1e-9)
    sign, logabsdet = linalg.slogdet(x)
    np.testing.assert_array_equal(sign.numpy(), np.linalg.slogdet(a)[0])
    np.testing.assert_allclose(logabsdet.numpy(), np.linalg.slogdet(a)[1], rtol=1e-9)
    a[1, :, 5] = 0
    sign, logabsdet = linalg.slogdet(polyhal.tensor(a, device=panels))
    assert (sign.numpy()[1], logabsdet.numpy()[1]) == (0, -np.inf)
    p, lower, upper = linalg.lu(x)
    np.testing.assert_allclose((p @ lower @ upper).numpy(), x.numpy(), atol=1e-12)
    assert linalg.lu(x, pivot=False).P.numpy().tolist() == np.broadcast_to(np.eye(90), a.shape).tolist()


@pytest.mark.parametrize("n", [3, 100])
def test_failures_are_named(panels: Device, n: int) -> None:
    a = np.stack([np.eye(n), np.eye(n)])
    a[1, n - 2, n - 2] = 0
    x = polyhal.tensor(a, device=panels)
    functions: dict[str, Callable[[], Any]] = {
        rf"\[inv\] matrix \(1,\) of the batch is singular: its pivot number {n - 1} is 0": lambda: linalg.inv(x),
        rf"\[solve\] matrix \(1,\) .* pivot number {n - 1} is 0": lambda: linalg.solve(x, x),
        rf"\[lu_factor\] matrix \(1,\) .* pivot number {n - 1} is 0": lambda: linalg.lu_factor(x),
        rf"\[cholesky\] matrix \(1,\) .* leading minor of order {n - 1} is not": lambda: linalg.cholesky(x),
    }
    for match, function in functions.items():
        with pytest.raises(LinAlgError, match=match):
            function()
    for result in (linalg.inv_ex(x), linalg.solve_ex(x, x), linalg.lu_factor_ex(x), linalg.cholesky_ex(x)):
        assert result.info.tolist() == [0, n - 1]
    assert not linalg.cholesky_ex(x).L.numpy()[1].any()


def test_results_without_a_check_are_not_read(panels: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = polyhal.tensor(np.eye(80), device=panels)
    linalg.solve_ex(x, x)
    monkeypatch.setattr(panels.backend, "copy_from_device", None)
    linalg.solve_ex(x, x), linalg.cholesky_ex(x), linalg.lu_factor_ex(x), linalg.qr(x), linalg.slogdet(x)
    with pytest.raises(TypeError):
        linalg.solve(x, x)


@pytest.mark.parametrize("n", [3, 80])
def test_a_captured_step_raises_the_error_at_the_call_that_solves(panels: Device, n: int) -> None:
    @polyhal.jit
    def step(a: Tensor, b: Tensor) -> Tensor:
        return linalg.solve(a + 0.0, b) * 2

    b = polyhal.ones((n, 1), device=panels)
    for _ in range(3):
        np.testing.assert_allclose(step(polyhal.eye(n, device=panels) * 4, b).numpy(), 0.5)
    with pytest.raises(LinAlgError, match=r"\[solve\] the matrix is singular: its pivot number 1 is 0"):
        step(polyhal.zeros((n, n), device=panels), b)
    np.testing.assert_allclose(step(polyhal.eye(n, device=panels), b).numpy(), 2)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda la, x: la.solve(x, x[..., :1] ** 2),
    "inv": lambda la, x: la.inv(x),
    "cholesky": lambda la, x: la.cholesky(x @ x.transpose(-2, -1)),
    "lu": lambda la, x: (lambda r: r[1] * 2 + r[2] ** 2)(la.lu(x)),
    "qr": lambda la, x: (lambda r: r[0] ** 2 + r[1] ** 2)(la.qr(x)),
    "slogdet": lambda la, x: la.slogdet(x)[1],
    "solve_triangular": lambda la, x: la.solve_triangular(x, x[..., :2] + 1, upper=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_and_second_gradients_are_pytorchs_and_need_no_host(panels: Device, rng: Any, name: str) -> None:
    torch = pytest.importorskip("torch")
    values, function = rng.normal(size=(66, 66)) / 8 + 2 * np.eye(66), PROGRAMS[name]
    ours = polyhal.tensor(values, device=panels, requires_grad=True)
    theirs = torch.tensor(values, requires_grad=True)
    (first,) = polyhal.grad((function(linalg, ours) ** 2).sum(), [ours], create_graph=True)
    (expected,) = torch.autograd.grad((function(torch.linalg, theirs) ** 2).sum(), [theirs], create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-7)
    (second,) = polyhal.grad((first * first).sum(), [ours])
    (expected,) = torch.autograd.grad((expected * expected).sum(), [theirs])
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_products_of_programs_have_full_precision(panels: Device, rng: Any) -> None:
    """The setting for products of the program's own does not lower the precision of a factorization."""
    x = polyhal.tensor(rng.normal(size=(100, 100)).astype(np.float32), device=panels)
    expected = linalg.lu_factor_ex(x).LU.tolist()
    previous = polyhal.get_float32_matmul_precision()
    polyhal.set_float32_matmul_precision("medium")
    try:
        assert linalg.lu_factor_ex(x).LU.tolist() == expected
    finally:
        polyhal.set_float32_matmul_precision(previous)


def test_processors_keep_lapack_for_large_matrices(numpy_device: Device) -> None:
    device = Device.opened("panels", PanelBackend(numpy_device.backend.info))
    spec = contiguous(polyhal.float32, (99, 99))
    plan = device.planner.plan(OPS["lu_factors"], (spec,), (True, False, 0))
    assert "LAPACK divides matrices into blocks" in " ".join(plan.resolution.skipped)


def test_programs_write_to_unaligned_results_by_kernels_for_these(
    panels: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels for aligned results would store whole vectors at an address that does not allow it."""
    lower = PanelBackend.lower

    def without_matrix(self: PanelBackend, op: str, *more: Any) -> Launch | Declined:
        return Declined("left out") if op == "permutation_matrix" else lower(self, op, *more)

    monkeypatch.setattr(PanelBackend, "lower", without_matrix)
    target = contiguous(polyhal.float32, (4, 4))._replace(aligned=False)
    op, pivots = OPS["permutation_matrix"], contiguous(polyhal.int32, (3,))
    plan = panels.planner.plan_into(op, (pivots,), (4, polyhal.float32), (target,), (dispatch.SEPARATE,))
    assert plan.resolution.how.startswith("program of")
    assert plan.resolution.parts[-1].outputs == (target,)
