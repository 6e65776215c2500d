"""Products compared with NumPy's, the order of contractions, and gradients at the edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import polyhal
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError
from polyhal.hal.ops.linear_algebra.contraction_order import contraction_order
from polyhal.hal.ops.linear_algebra.einsum import plan_einsum
from polyhal.hal.ops.linear_algebra.powers import chain_splits


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_products_over_no_elements_have_gradients(device: Device) -> None:
    a = polyhal.zeros((5, 5, 0), device=device, requires_grad=True)
    b = polyhal.zeros((0, 3), device=device, requires_grad=True)
    (a @ b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert (a.grad.shape, b.grad.shape) == ((5, 5, 0), (0, 3))


def test_linear_of_no_features_has_gradients(device: Device) -> None:
    x = polyhal.zeros((2, 3, 0), device=device, requires_grad=True)
    weight = polyhal.zeros((4, 0), device=device, requires_grad=True)
    polyhal.linear(x, weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.shape == (4, 0)


def test_products_of_bool_matrices_are_refused(device: Device) -> None:
    x = polyhal.tensor(np.ones((2, 3), bool), device=device)
    with pytest.raises(UnsupportedDTypeError, match=r"\[matmul\] got bool_; expected numbers"):
        x @ x.permute((1, 0))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,kj", [(3, 4), (5, 4)]),
        ("bij,bjk->bki", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ii", [(3, 3)]),
        ("iij->j", [(3, 3, 2)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("i,j,k->kij", [(2,), (3,), (4,)]),
        ("ij,jk,kl,li->", [(2, 3), (3, 4), (4, 5), (5, 2)]),
        ("abc,cd,db->a", [(2, 3, 4), (4, 5), (5, 3)]),
        ("ij->", [(3, 4)]),
        ("ij,ij->i", [(3, 4), (3, 1)]),
        ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)]),
        ("bqdh,bkdh->bhqk", [(2, 3, 5, 4), (2, 6, 5, 4)]),
        ("aibcdj,abcjdk->abcdik", [(2, 3, 2, 2, 3, 4), (2, 2, 2, 4, 3, 5)]),
    ],
)
def test_einsum_is_numpys(equation: str, shapes: list[tuple[int, ...]], device: Device) -> None:
    arrays = [_data(*shape, seed=i) for i, shape in enumerate(shapes)]
    result = polyhal.einsum(equation, *(polyhal.tensor(a, device=device) for a in arrays))
    np.testing.assert_allclose(result.numpy(), np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5)


def test_einsum_reads_the_heads_of_attention_where_they_lie() -> None:
    names: list[str] = []
    x, y = polyhal.ones((2, 3, 4, 5), device="numpy"), polyhal.ones((2, 6, 4, 5), device="numpy")
    for equation, operands in {"bqhd,bkhd->bhqk": (x, y), "bhqk,bkhd->bqhd": (polyhal.ones((2, 4, 3, 6)), y)}.items():
        plan = plan_einsum(equation, tuple(o.spec for o in operands))
        names += [step.op.op.name for step in plan.steps]
    assert set(names) == {"permute", "matmul"}


def test_einsum_takes_lists_of_numbers() -> None:
    x, y = _data(3, 4), _data(4, 5)
    result = polyhal.einsum(polyhal.tensor(x), [0, 1], polyhal.tensor(y), [1, 2], [2, 0])
    np.testing.assert_allclose(result.numpy(), (x @ y).T, rtol=1e-5)


def test_einsum_has_second_gradients() -> None:
    x = polyhal.tensor(_data(3, 3), device="numpy", requires_grad=True)
    (first,) = polyhal.grad(polyhal.einsum("ij,jk,ki->", x, x, x), [x], create_graph=True)
    (second,) = polyhal.grad(first.sum(), [x])
    a = x.detach().numpy()
    np.testing.assert_allclose(first.detach().numpy(), 3 * (a @ a).T, rtol=1e-4)
    ones = np.ones((3, 3))
    np.testing.assert_allclose(second.numpy(), 3 * (ones @ a.T + a.T @ ones), rtol=1e-4)


@pytest.mark.parametrize(
    ("equation", "shapes", "match"),
    [
        ("ij,jk", [(3, 4)], "names 2 operands"),
        ("ij->ii", [(3, 4)], "result"),
        ("ij->k", [(3, 4)], "result"),
        ("ij,jk", [(3, 4), (5, 6)], "'j' in 'ij,jk' is 4 in one operand and 5 in another"),
        ("ijk", [(3, 4)], "does not fit an operand with 2 axes"),
        ("i1", [(3, 4)], "expected letters"),
    ],
)
def test_einsum_says_what_is_wrong(equation: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(ShapeError, match=match):
        polyhal.einsum(equation, *(polyhal.zeros(s, device="numpy") for s in shapes))


def test_few_operands_are_contracted_in_the_best_order() -> None:
    """A vector at the end of a chain of matrices is multiplied first."""
    operands = (frozenset("ij"), frozenset("jk"), frozenset("kl"), frozenset("l"))
    lengths = tuple((label, 100) for label in "ijkl")
    assert contraction_order(operands, frozenset("i"), lengths) == [(2, 3), (1, 2), (0, 1)]


def test_many_operands_are_contracted_greedily() -> None:
    labels = "abcdefghijkl"
    operands = (*(frozenset(pair) for pair in itertools.pairwise(labels)), frozenset("l"))
    lengths = tuple((label, 100) for label in labels)
    order = contraction_order(operands, frozenset("a"), lengths)
    assert len(order) == len(operands) - 1
    assert order[0] == (10, 11)


def test_chains_are_multiplied_in_the_best_order() -> None:
    """The example of Cormen et al., Introduction to Algorithms, section 15.2: ((A1 (A2 A3)) ((A4 A5) A6))."""
    splits = chain_splits([30, 35, 15, 5, 10, 20, 25])
    assert splits[0, 5] == 2
    assert splits[0, 2] == 0
    assert splits[3, 5] == 4


def test_tensordot_and_kron_are_numpys(device: Device) -> None:
    x, y = _data(2, 3, 4), _data(4, 3, 5)
    ours, theirs = polyhal.tensor(x, device=device), polyhal.tensor(y, device=device)
    product = polyhal.tensordot(ours, theirs, dims=([1, 2], [1, 0]))
    np.testing.assert_allclose(product.numpy(), np.tensordot(x, y, ([1, 2], [1, 0])), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(polyhal.kron(ours, theirs).numpy(), np.kron(x, y), rtol=1e-6)


def test_axes_of_length_1_are_broadcast_in_tensordot() -> None:
    x = polyhal.ones((1, 3), dtype=polyhal.int32, device="numpy")
    y = polyhal.ones((2, 3), dtype=polyhal.int32, device="numpy")
    product = polyhal.tensordot(x, y, ((0, 1), (0, 1)))
    assert (product.item(), product.dtype) == (6, polyhal.int32)


def test_a_factor_of_zero_hides_nan(device: Device) -> None:
    x = polyhal.tensor([[float("nan")]], device=device)
    one = polyhal.ones((1, 1), device=device)
    assert polyhal.addmm(x, one, one, beta=0).tolist() == [[1.0]]
