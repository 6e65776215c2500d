"""Programs of views of views, written in many orders and through indices, compared with PyTorch eagerly and captured."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reliability.programs.agree import assert_agrees, leaf
from polyhal import Device

pytestmark = pytest.mark.filterwarnings("ignore")

_RNG = np.random.default_rng(0)
LEAVES = {
    "x1": leaf(_RNG.uniform(-2, 2, (4, 6)), "float32"),
    "x3": leaf(_RNG.integers(-5, 5, (4, 6)), "int64"),
    "x4": leaf(_RNG.integers(0, 2, (4, 6)).astype(bool), "bool"),
    "x6": leaf([2, 0, 2], "int64"),
    "p1": leaf(_RNG.uniform(-2, 2, (4, 6)), "float32", requires_grad=True),
    "p2": leaf(_RNG.uniform(-2, 2, (6,)), "float32", requires_grad=True),
    "p3": leaf(_RNG.uniform(-2, 2, (3,)), "float32", requires_grad=True),
    "p5": leaf(_RNG.uniform(-2, 2, (2, 3, 4)), "float32", requires_grad=True),
}
PROGRAMS = {
    "a base and views of views in turn": """
        v1 = p1 * 1.0
        v2 = v1[1]
        v3 = v2[2:5]
        v2 += 1.0
        v3 *= 2.0
        v1 -= 0.5
        v4 = (v3 * v2[1:4] * v1[0, :3]).sum()
        v4.backward()
    """,
    "a row and a column that cross": """
        v1 = p1 * 1.0
        v2 = v1[0]
        v3 = v1[:, 0]
        v2.mul_(2.0)
        v4 = (v3 * 2.0).sum()
        v3.add_(v2[:4])
        v5 = v4 + (v1 * v2).sum()
        v6 = torch.autograd.grad(v5, v2, retain_graph=True)[0]
        v7 = torch.autograd.grad(v5, v1, retain_graph=True)[0]
        v5.backward()
    """,
    "views of the whole": """
        v1 = p1 * 1.0
        v2 = v1[...]
        v3 = v1[:]
        v2.mul_(x1[0])
        v4 = (v3 * v2).sum() + v1.sum()
        v5, v6, v7 = torch.autograd.grad(v4, [v1, v2, v3], allow_unused=True, retain_graph=True)
        v4.backward()
    """,
    "a permuted view with gaps": """
        v1 = p5 * 1.0
        v2 = torch.movedim(v1, 0, 2).narrow(1, 1, 2)
        v2[2, :, 1] = 0.5
        v1.permute(1, 0, 2).select(1, 1).t()[3] = p3
        v1.transpose(0, 2)[1:3, 0] = x1[:2, :2]
        v3 = (v1 * v1).sum()
        v3.backward()
    """,
    "windows and a broadcast": """
        v1 = p2 * 1.0
        v2 = v1.unfold(0, 2, 2)
        v3 = v1.unsqueeze(0).expand(3, 6)
        v2[1] = 7.0
        v2[:, 0].add_(p3)
        v4 = (v3 * v1).sum()
        v4.backward()
    """,
    "diagonals": """
        v1 = torch.zeros(3, 4)
        v1.diagonal().copy_(p3)
        v1[0].add_(p3.sum())
        v2 = v1.t()[1:]
        v2.fill_diagonal_(0.25)
        v3 = (v1 * v1).sum()
        v3.backward()
    """,
    "indices of parts with gaps": """
        v1 = p1 * 1.0
        v1[:, 1:5].index_copy_(1, torch.tensor([3, 1]), x1[:, :2])
        v1[1:, ::2].scatter_(1, torch.tensor([[0, 2], [1, 0]]), 5.0)
        v1.t()[:3].masked_fill_(x4.t()[:3], 2.0)
        v1.t().index_add_(0, x6, p1.t()[:3], alpha=2.0)
        v2 = (v1 * v1).sum()
        v2.backward()
    """,
    "indices of every kind": """
        v1 = p5 * 1.0
        v1[..., [0, 3]] = v1[..., [3, 0]]
        v1[:, [2, 1, 0]] = v1.clone()
        v1[1, [0, 2]] += p3[:2, None]
        v1[0, [[0], [2]], [1, 3]] = x1[:2, :2]
        v1[:, True, 1, :2] = p2[:4].view(2, 1, 2)
        v1[None, x6[0].clamp(max=1), ..., None] = p3[:, None, None] * v1[1, :, :, None].clone()
        v2 = (v1 * v1).sum()
        v2.backward()
    """,
    "a read of selected slices": """
        v1 = p5 * 1.0
        v2 = v1[..., x6]
        v3 = torch.index_select(v1, 2, x6).view(2, -1)
        v3[0] = 2.0
        v2.view(-1)[1::2] *= 3.0
        v4 = (v2 * v2).sum() + (v3 * v3).sum()
        v4.backward()
    """,
    "integers and bools": """
        v1 = x3.clone()
        v1[0] = x4[1]
        v1[3, ::2] = -v1[3, 1::2]
        v1[x4] = -1
        v1.t()[1:3, [0, 2]] = torch.tensor([[9], [8]])
        v2 = x4.clone()
        v2.t()[1].logical_not_()
        v2[x6, x6] = False
    """,
    "nothing": """
        v1 = torch.zeros(0, 4)
        v1[:, 1] = p3.sum()
        v1[[]] = 2.0
        v2 = v1.t()[1:].reshape(-1)
        v2.add_(1.0)
        v3 = v1.sum() + p3.sum()
        v3.backward()
    """,
}


@pytest.mark.parametrize("mode", ["eager", "captured"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_written_views_agrees_with_pytorch(device: Device, name: str, mode: str) -> None:
    used = {leaf_name: x for leaf_name, x in LEAVES.items() if leaf_name in PROGRAMS[name]}
    assert_agrees(device, PROGRAMS[name], mode, **used)
