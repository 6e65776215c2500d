"""Each difference from PyTorch that is meant: a program with it, and programs that it does not excuse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.reliability.programs.agree import INF, NAN, leaf, program_of
from benchmarks.reliability.programs.difference import Difference, Missing, OneError, WrongValue
from benchmarks.reliability.programs.execute import Raised
from benchmarks.reliability.programs.known import KNOWN, explained
from benchmarks.reliability.programs.libraries import Value
from benchmarks.reliability.programs.limits import LIMITS, at_a_limit
from benchmarks.reliability.programs.modes import MODES
from benchmarks.reliability.programs.program import Leaf, Program
from polyhal import Device

pytestmark = pytest.mark.filterwarnings("ignore")


class _Case(NamedTuple):
    name: str
    text: str
    leaves: dict[str, Leaf]
    mode: str = "eager"

    def program(self) -> Program:
        return program_of(self.text, **self.leaves)


X = leaf([[0.5, -1.0], [2.0, 0.25]], "float32", requires_grad=True)
ROWS = leaf([[[0.5, -1.0], [2.0, 0.25]]], "float32", requires_grad=True)
CANCELLING = [
    [
        [[-1.0, 2.0, 1.0, -1.0], [-1.0, 0.0, 1.0, 1.0], [0.0, -2.0, -1.0, -1.0], [2.0, 1.0, 0.0, 2.0]],
        [[-1.0, -1.0, -1.0, -1.0], [1.0, 0.0, 0.0, 2.0], [-2.0, 1.0, 0.0, 1.0], [2.0, 0.0, 1.0, -2.0]],
        [[2.0, 0.0, 2.0, 0.0], [0.0, 0.0, 1.0, -2.0], [-1.0, 2.0, -1.0, 2.0], [0.0, 1.0, -1.0, -2.0]],
        [[1.0, 0.0, 0.0, -1.0], [-2.0, 1.0, -2.0, 1.0], [0.0, -2.0, 0.0, 0.0], [-1.0, -1.0, 1.0, 1.0]],
    ]
]
CASES = (
    _Case(
        "keeps more for the gradient",
        "v1 = x1 * 1.0\nv2 = F.tanhshrink(v1)\nv1.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X},
    ),
    _Case(
        "keeps more for the gradient",
        "v1 = x1 * 1.0\nv2 = F.cross_entropy(v1, x2, reduction='none')\nv1.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X, "x2": leaf([0, 1], "int64")},
    ),
    _Case(
        "a write that PyTorch does not notice",
        "v1 = x1 * 1.0\nv2 = torch.kron(v1, x2)\nx2.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X, "x2": leaf([[1.0, 2.0]], "float32")},
    ),
    _Case(
        "PyTorch copies",
        "v1 = torch.tensordot(x1, x2, 1)\nx1.exp_()\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[1.0]], "float32"), "x2": leaf([[1.0]], "float32", requires_grad=True)},
    ),
    _Case(
        "PyTorch copies",
        "m1 = made(nn.GRU(2, 3, batch_first=True), 1)\nv1 = m1(x1)[0]\nx1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[[0.5, 1.0], [2.0, -1.0]], [[1.5, 1.0], [2.5, -1.0]]], "float32")},
        "torch eager",
    ),
    _Case(
        "PyTorch copies",
        "m1 = made(nn.GRU(2, 3), 1)\nv1 = m1(x1)[0]\nv1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[[0.5, 1.0], [2.0, -1.0]], [[1.5, 1.0], [2.5, -1.0]]], "float32")},
        "torch eager",
    ),
    _Case(
        "PyTorch copies",
        "v1 = F.linear(x1, x2, x3)\nx1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([[1.0, 2.0]], "float32"), "x3": leaf([1.0], "float32", True)},
        "torch eager",
    ),
    _Case(
        "PyTorch copies",
        """
        m1 = made(nn.MultiheadAttention(2, 1, batch_first=True), 57)
        v1 = x1 * 1.0
        v2 = m1(v1, v1, v1, need_weights=False)[0]
        v1.mul_(2.0)
        v3 = v2.sum()
        v3.backward()
        """,
        {"x1": leaf([[[0.5, 1.0], [2.0, -1.0]], [[1.5, 1.0], [2.5, -1.0]]], "float32")},
    ),
    _Case(
        "PyTorch copies",
        "v1 = x1 * 1.0\nv2 = F.cross_entropy(v1, x2)\nv1.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X, "x2": leaf([0, 1], "int64")},
        "torch eager",
    ),
    _Case(
        "the gradient of padding",
        "v1 = F.pad(x1, (1, 0), mode='replicate')\nv2 = torch.autograd.grad(v1.sum(), x1, create_graph=True)[0]",
        {"x1": ROWS},
    ),
    _Case("at infinities and NaN", "v1 = torch.sign(x1)", {"x1": leaf([NAN, 1.0], "float32")}),
    _Case(
        "a gradient is a broadcast",
        "v1 = x1.sum()\nv2 = torch.autograd.grad(v1, x1)[0]\nv2.mul_(2.0)",
        {"x1": X},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = F.softsign(x1).sum()\nv1.backward()",
        {"x1": leaf([INF, 1.0], "float32", requires_grad=True)},
    ),
    _Case(
        "at infinities and NaN",
        """
        v1 = torch.copysign(x1, x2).sum()
        v2 = torch.autograd.grad(v1, x1, create_graph=True)[0]
        v3 = (v2 * v2).sum()
        v3.backward()
        """,
        {"x1": leaf([1.0, 0.0], "float32", True), "x2": leaf([1.0, 1.0], "float32")},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.linalg.matrix_power(x1, 3)",
        {"x1": leaf([[-0.482, -0.045], [-0.482, INF]], "float32")},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.searchsorted(x1, x2)",
        {"x1": leaf([0.0, NAN], "float32"), "x2": leaf([0.5, 0.25], "float32")},
    ),
    _Case(
        "a hook of a view",
        """
        v1 = p1.permute([1, 0])
        v1.register_hook(lambda g: -g)
        with torch.no_grad():
            p1.mul_(0.9)
        v2 = torch.tanh(v1).sum()
        v2.backward()
        """,
        {"p1": X},
    ),
    _Case(
        "one of several zeros",
        "v1 = torch.topk(x1, 2)[0].sum()\nv1.backward()",
        {"x1": leaf([[0.0, 1.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0] * 4], "float32", requires_grad=True)},
    ),
    _Case(
        "the joint of prelu",
        """
        m1 = made(nn.PReLU(), 606)
        v1 = m1(x1).sum()
        v2 = torch.autograd.grad(v1, x1, create_graph=True)[0]
        v3 = torch.tanh(v2).sum()
        v3.backward()
        """,
        {"x1": leaf([0.0], "float32", requires_grad=True)},
    ),
    _Case(
        "a gradient that PyTorch does not have",
        "v1 = torch.heaviside(x1, x1).sum()\nv1.backward()",
        {"x1": X},
    ),
    _Case(
        "the sign of a zero",
        "v1 = F.layer_norm(x1, [3], eps=0.5)\nv2 = torch.atan2(x2, v1)",
        {"x1": leaf([[-0.0, 0.0, 0.0]], "float32"), "x2": leaf([[0.0, 0.0, 2.0]], "float32")},
    ),
    _Case(
        "PyTorch is less exact",
        "v1 = torch.special.airy_ai(x1)",
        {"x1": leaf([-2.2431305755109308], "float64")},
    ),
    _Case(
        "PyTorch is less exact",
        "v1 = torch.tanh(F.hardsigmoid(x1)).sum()\nv1.backward()",
        {"x1": leaf([1.0], "float64", requires_grad=True)},
    ),
    _Case(
        "PyTorch copies",
        "v1 = x1.permute([1, 0, 2]) * 1.0\nv2 = torch.matmul(v1, x2)\nv1.mul_(2.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": leaf([[[1.0, 2.0], [3.0, 4.0]]] * 2, "float32"), "x2": leaf([1.0, 2.0], "float32", True)},
    ),
    _Case(
        "windows that overlap",
        "v1 = x1.unfold(0, 2, 1)\nv2 = torch.select_scatter(v1, x2, 0, 0)",
        {"x1": leaf([1.0, 2.0, 3.0], "float32"), "x2": leaf([4.0, 5.0], "float32")},
    ),
    _Case(
        "differences of nothing",
        "v1 = torch.diff(x1, dim=0)\nv1[:] = x2",
        {"x1": leaf([], "float32"), "x2": leaf([1.0], "float32", True)},
    ),
    _Case(
        "differences of nothing",
        "v1 = torch.diff(x1, dim=0)\nv2 = x1.sum()\nv3 = torch.autograd.grad(v2, v1)[0]",
        {"x1": leaf([], "float32", True)},
    ),
    _Case(
        "a layout of PyTorch",
        """
        v1 = torch.einsum('ij,jk->ik', x1, x2)
        v1.register_hook(lambda g: torch.clamp(g, -0.3, 0.3))
        v1.index_add_(0, torch.tensor([0, 1]), x1[:, :1].detach())
        v2 = v1.sum()
        v2.backward()
        """,
        {"x1": X, "x2": leaf([[1.0], [2.0]], "float32")},
    ),
    _Case(
        "a layout of PyTorch",
        "v1 = x1.sum()\nv2 = torch.autograd.grad(v1, x1)[0]\nv2[1:, 1:].mul_(-1.5)",
        {"x1": X},
    ),
    _Case(
        "a hook of a view",
        """
        v1 = x1[:1]
        v1.register_hook(lambda g: g * 0.5)
        v1.backward(torch.ones_like(v1), retain_graph=True)
        v2 = x1.detach()
        v2[:] = 1.0
        v3 = (v1 * 2.0).sum()
        v3.backward()
        """,
        {"x1": X},
    ),
    _Case(
        "a hook of a view",
        """
        v1 = x1[:1]
        v2 = v1[:]
        with torch.no_grad():
            x1.add_(1.0)
        v1.register_hook(lambda g: g * 0.5)
        v3 = (v2 * 2.0).sum()
        v3.backward()
        """,
        {"x1": X},
    ),
    _Case(
        "the sign of a zero",
        "v1 = F.mish(x1)\nv2 = torch.copysign(x2, v1)",
        {"x1": leaf([-INF], "float32"), "x2": leaf([1.0], "float32")},
    ),
    _Case(
        "rounding decides",
        "v1 = F.batch_norm(x1, None, None, None, None, True)\nv2 = v1.mean()\nv2 *= v2\nv3 = torch.floor_divide(v2, v1)",
        {"x1": leaf([[1.0], [2.0], [3.0], [4.0]], "float32")},
    ),
    _Case(
        "second gradients through a result",
        """
        v1 = torch.logcumsumexp(x1 * 1.0, 0)
        v2 = (v1 * v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = (v3 * v3).sum()
        v5 = torch.autograd.grad(v4, v1)[0]
        """,
        {"x1": X},
    ),
    _Case(
        "second gradients through a result",
        """
        v1 = F.scaled_dot_product_attention(x1, x1, x1)
        v1.register_hook(lambda g: g * 0.5)
        v2 = torch.tanh(v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = (v3 * v3).sum()
        v4.backward()
        """,
        {"x1": ROWS},
    ),
    _Case(
        "a checkpoint of changed inputs",
        """
        m1 = made(nn.Linear(2, 2), 1)
        v1 = torch.utils.checkpoint.checkpoint(lambda x1: m1(x1), x1, use_reentrant=False)
        v2 = v1.sum()
        with torch.no_grad():
            m1.weight.mul_(0.5)
        v2.backward()
        """,
        {"x1": X},
    ),
    _Case(
        "a linear layer of a device",
        "v1 = F.linear(x1, x2).sum()\nv2 = torch.autograd.grad(v1, x2, create_graph=True)[0]",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([[1.0, 2.0]], "float32", True)},
        "torch eager",
    ),
    _Case(
        "PyTorch copies",
        "v1 = F.linear(x1, x2, x3).sum()\nv1.backward()\nv2 = v1 * 2.0\nv2.backward()",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([[1.0, 2.0]], "float32"), "x3": leaf([1.0], "float32", True)},
        "torch eager",
    ),
    _Case(
        "PyTorch copies",
        "v1 = F.rms_norm(x1, [2], x2)\nx1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([1.0, 2.0], "float32", True)},
        "torch eager",
    ),
    _Case(
        "PyTorch copies",
        "v1 = x1.mT\nv2 = F.linear(v1, x2)\nx1.mul_(2.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": leaf([[[1.0, 2.0], [3.0, 4.0]]] * 2, "float32"), "x2": leaf([[1.0, 2.0]], "float32", True)},
    ),
    _Case(
        "rounding decides",
        "v1 = torch.linalg.cross(x1, x1)\nv2 = torch.argwhere(v1)\nv3 = torch.where(x2, v2, v2)",
        {
            "x1": leaf([[-0.2590000033378601, 1.8279999494552612, 0.7760000228881836]], "float32"),
            "x2": leaf([[True]] * 2, "bool"),
        },
    ),
    _Case(
        "rounding decides",
        "v1 = torch.logaddexp2(x1, x1)\nv2 = torch.argwhere(v1)",
        {"x1": leaf([-1.0, -1.0, -1.0, -1.0], "float32")},
    ),
    _Case("a layout of PyTorch", "v1 = torch.tanh(x1.mT)\nv2 = v1.contiguous()\nv2.mul_(2.0)", {"x1": X}),
    _Case(
        "a layout of PyTorch",
        "v1 = torch.linalg.cholesky(x1 @ x1.mT).unfold(0, 2, 1)\nv2 = v1.flatten()\nv2[:-1] = -1.0",
        {"x1": X},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.hypot(x1, x1).sum()\nv1.backward()",
        {"x1": leaf([1.0, 0.0], "float32", requires_grad=True)},
    ),
    _Case(
        "at infinities and NaN",
        """
        v1 = torch.sinc(x1).sum()
        v2 = torch.autograd.grad(v1, x1, create_graph=True)[0]
        v3 = v2.sum()
        v3.backward()
        """,
        {"x1": leaf([0.0, 0.5], "float32", requires_grad=True)},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.nanmean(x1, 1).sum()\nv1.backward()",
        {"x1": leaf([[1.0], [NAN]], "float32", requires_grad=True)},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.scatter_reduce(x1, 0, x2, x1, 'amax').sum()\nv1.backward()",
        {"x1": leaf([NAN, 1.0], "float32", requires_grad=True), "x2": leaf([1, 1], "int64")},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = F.soft_margin_loss(x1, x2, reduction='none').sum()\nv1.backward()",
        {"x1": leaf([-60000.0, 1.0], "float32", requires_grad=True), "x2": leaf([1.0, 1.0], "float32")},
    ),
    _Case("at infinities and NaN", "v1 = torch.sign(x1)\nv2 = torch.isnan(v1)", {"x1": leaf([NAN, 1.0], "float32")}),
    _Case(
        "at infinities and NaN",
        "v1 = F.l1_loss(x1, x2, reduction='sum')\nv1.backward()\nv2 = x1.grad.clone()",
        {"x1": leaf([INF, 1.0], "float32", requires_grad=True), "x2": leaf([INF, 0.5], "float32")},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.logcumsumexp(x1, 0)\nv2 = (v1 * x2).sum()\nv2.backward()",
        {"x1": leaf([0.5, -INF], "float32", requires_grad=True), "x2": leaf([1.0, NAN], "float32")},
    ),
    _Case(
        "at infinities and NaN",
        "v1 = torch.addmv(x1, x2, x3)",
        {"x1": leaf([-INF], "float16"), "x2": leaf([[2.0, 3.0]], "float16"), "x3": leaf([60000.0, 2.0], "float16")},
    ),
    _Case(
        "the sign of a zero",
        "v1 = torch.relu(x1)\nv2 = torch.atan2(v1, x2)",
        {"x1": leaf([-0.0, 1.0], "float32"), "x2": leaf([-2.0, 1.0], "float32")},
    ),
    _Case(
        "gradients that cancel",
        """
        v1 = F.group_norm(x1, 2)
        v2 = torch.index_fill(v1, 0, torch.tensor([0]), 0.5) + v1.sum()
        v3 = torch.tanh(v2).sum() + torch.tanh(v2).sum() + v1.mean()
        v3.backward()
        """,
        {"x1": leaf(CANCELLING, "float32", requires_grad=True)},
    ),
    _Case(
        "attention to one key",
        """
        v1 = F.scaled_dot_product_attention(x1, x1, x2, None, is_causal=False)
        v2 = torch.scatter(x2, 2, torch.argsort(x2, dim=2, stable=True), v1)
        v3 = (v2 * v2).sum() + v2.sum()
        v3.backward()
        """,
        {
            "x1": leaf([[[1.0, 2.0, 3.0, 4.0, 5.0]], [[21.0, 22.0, 23.0, 24.0, 25.0]]], "float32", requires_grad=True),
            "x2": leaf([[[1.045, -0.814, -1.065, 1.402, -0.317]], [[3.452, 1.201, -0.608, -0.577, 0.724]]], "float32"),
        },
    ),
    _Case(
        "second gradients of attention",
        """
        v1 = F.scaled_dot_product_attention(x1, x1, x1, None, is_causal=False)
        v2 = torch.tanh(v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = v3.sin().sum()
        v4.backward()
        """,
        {"x1": ROWS},
        "torch eager",
    ),
    _Case(
        "zeros off the tape",
        """
        v1 = torch.tril(x1, 0)
        v1[-1, :, :, None] = 0.3
        v2 = (v1 * v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = (v3 * v3).sum()
        v4.backward()
        """,
        {"x1": leaf([[[1.0]]], "float32", requires_grad=True)},
    ),
    _Case(
        "statistics of a checkpoint",
        """
        m1 = made(nn.BatchNorm1d(2, eps=0.1), 15)
        v1 = torch.utils.checkpoint.checkpoint(lambda m1, x1: m1(x1), m1, x1, use_reentrant=False)
        """,
        {"x1": leaf([[1.0, 2.0], [3.0, 5.0]], "float32")},
        "captured forward",
    ),
    _Case(
        "rounding decides",
        "v1 = F.group_norm(x1, 1)\nv2 = torch.logical_not(v1)",
        {
            "x1": leaf(
                [
                    [
                        [
                            [-1.0, 0.0, 0.0, 1.0, 2.0],
                            [1.0, 2.0, -2.0, 2.0, 0.0],
                            [-1.0, 1.0, 0.0, -2.0, 1.0],
                            [1.0, 0.0, 1.0, 0.0, 2.0],
                        ],
                        [
                            [-1.0, 0.0, 1.0, -1.0, -2.0],
                            [1.0, 1.0, -1.0, 1.0, 2.0],
                            [-1.0, -2.0, 0.0, 0.0, -2.0],
                            [1.0, -1.0, -2.0, 0.0, -2.0],
                        ],
                    ]
                ],
                "float32",
            )
        },
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}, {c.text.strip().split(chr(10))[0][:40]}")
def test_a_program_with_the_difference_is_explained_by_it(case: _Case, numpy_device: Device) -> None:
    outcome = MODES[case.mode](case.program(), numpy_device)
    assert outcome.known() == {case.name}
    assert not outcome.findings()


def test_each_known_difference_has_a_program() -> None:
    elsewhere = {
        "zeros for no gradient",  # of captured programs
    }
    assert {k.name for k in KNOWN} - elsewhere == {c.name for c in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}, {c.text.strip().split(chr(10))[0][:40]}")
def test_a_known_difference_excuses_no_wrong_value_and_no_other_error(case: _Case) -> None:
    program = case.program()
    others: list[Difference] = [
        Missing(0, "v1", Value(np.zeros(2), "float32", False)),
        OneError(0, "errors", 0, Raised("ShapeError", "[add] shapes (2,) and (3,) do not fit"), is_ours=True),
        OneError(0, "errors", 0, Raised("RuntimeError", "The size of tensor a (2) must match b (3)"), is_ours=False),
    ]
    if "searchsorted" not in case.text:  # positions of NaN are any
        others.append(_wrong("v1", 1.25, 1.5))
    assert not [str(d) for d in others if explained(program, d)]


def _wrong(name: str, ours: object, theirs: object) -> WrongValue:
    a, b = np.array([ours]), np.array([theirs])
    return WrongValue(0, name, a, b, np.array([[0]]), 2, "float32" if a.dtype.kind == "f" else a.dtype.name)


@pytest.mark.parametrize("name", ["one of several zeros", "the joint of prelu"])
def test_a_gradient_at_zero_that_pytorch_has_on_neither_side_is_not_excused(name: str) -> None:
    program = next(c.program() for c in CASES if c.name == name)
    place = np.zeros((1, program.leaves[0].values.ndim), int)
    assert not explained(program, WrongValue(0, "x1.grad", np.array([0.625]), np.array([1.0]), place, 16, "float32"))


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("v1 = torch.sin(x1)", NAN, 1.5),
        ("v1 = torch.sin(x1)", 1.5, NAN),
        ("v1 = torch.abs(x1)", NAN, 1.5),
        ("v1 = F.softsign(x1)", NAN, 0.0),
        ("v1 = torch.sin(x1)\nv2 = F.softsign(x1)", 1.5, NAN),
        ("v2 = F.softsign(x2)\nv1 = v2 + x1", 1.5, NAN),
    ],
)
def test_a_limit_is_that_of_its_op_and_of_its_library(text: str, ours: float, theirs: float) -> None:
    program = program_of(text, x1=leaf([INF, NAN], "float32"), x2=leaf([1.0, 2.0], "float32"))
    assert not at_a_limit(program, _wrong("v1", ours, theirs))


def test_numbers_of_ordinary_size_have_no_limit() -> None:
    for limit in LIMITS:
        call = limit.calls.split("|")[0].replace("\\", "").replace("?", "")
        program = program_of(f"v1 = x1 + 1.0  # {call}", x1=leaf([1.0, 2.0], "float32"))
        for pair in ((NAN, 1.5), (1.5, NAN), (1.5, INF)):
            assert not at_a_limit(program, _wrong("x1.grad", *pair))


def test_a_truth_value_is_not_at_a_limit() -> None:
    program = program_of("v1 = torch.sign(x1) > 0.0", x1=leaf([NAN, 1.0], "float32"))
    assert not at_a_limit(program, _wrong("v2", True, False))


def test_one_wrong_element_is_not_excused_by_others() -> None:
    program = program_of("v1 = torch.sign(x1)", x1=leaf([NAN, 1.0], "float32"))
    both = WrongValue(0, "v1", np.array([NAN, 0.5]), np.array([0.0, 1.0]), np.array([[0], [1]]), 2, "float32")
    assert at_a_limit(program, _wrong("v1", NAN, 0.0))
    assert not at_a_limit(program, both)
