"""Grouped matrix products against PyTorch's loop over groups, and recorded for ends that change between calls."""

from __future__ import annotations

import pytest
import torch

import polyhal.torch
from polyhal.torch.registration import library_op
from polyhal.torch.table.library_ops import grouped_rows, grouped_rows_backward

ENDS = {"empty groups": [3, 3, 8, 8], "one group": [0, 0, 8, 8], "rows behind the last": [1, 2, 2, 5], "none": [0] * 4}


def _by_loop(x: torch.Tensor, weight: torch.Tensor, ends: list[int]) -> torch.Tensor:
    parts = [x[start:end] @ w for start, end, w in zip([0, *ends], ends, weight, strict=False)]
    return torch.cat([*parts, torch.zeros(len(x) - ends[-1], weight.shape[2], dtype=x.dtype)])


def _operands() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 4, generator=generator), torch.randn(4, 8, 4, generator=generator)


@pytest.mark.parametrize("name", ENDS)
def test_a_grouped_product_and_its_gradients_equal_a_loop_over_the_groups(name: str) -> None:
    x, weight = _operands()
    leaves = [t.double().requires_grad_() for t in (x, weight)]
    expected = _by_loop(leaves[0], leaves[1].mT, ENDS[name])
    expected.square().sum().backward()
    ours = [t.to("polyhal").requires_grad_() for t in (x, weight)]
    ends = torch.tensor(ENDS[name], dtype=torch.int32, device="polyhal")
    found = torch._grouped_mm(ours[0], ours[1].mT, offs=ends)
    found.square().sum().backward()
    for a, b in zip([found, *(t.grad for t in ours)], [expected, *(t.grad for t in leaves)], strict=True):
        assert a is not None
        assert b is not None
        torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=1e-5 * max(1.0, b.abs().max().item()))


def _grouped(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return _by_loop(x, weight, offs.tolist())


def _grouped_backward(
    x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError("the compiled graph has the function of the table")


@pytest.mark.usefixtures("fresh_compiler")
def test_an_op_of_a_library_that_reads_the_ends_does_not_split_a_graph() -> None:
    operands = "(Tensor x, Tensor weight, Tensor offs"
    op = torch.library.custom_op("polyhal_tests::rows", _grouped, mutates_args=(), schema=f"{operands}) -> Tensor")
    op.register_fake(lambda x, weight, offs: x.new_empty(x.shape[0], weight.shape[2]))
    backward = torch.library.custom_op(
        "polyhal_tests::rows_backward",
        _grouped_backward,
        mutates_args=(),
        schema=f"{operands}, Tensor gradient) -> (Tensor, Tensor)",
    )
    backward.register_fake(lambda x, weight, offs, gradient: (torch.empty_like(x), torch.empty_like(weight)))
    op.register_autograd(
        lambda ctx, gradient: (*torch.ops.polyhal_tests.rows_backward(*ctx.saved_tensors, gradient), None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    library_op("polyhal_tests::rows")(grouped_rows)
    library_op("polyhal_tests::rows_backward")(grouped_rows_backward)
    x, weight = _operands()
    leaves = [t.double().requires_grad_() for t in (x, weight.mT)]
    ends = ENDS["empty groups"]
    expected = [_by_loop(leaves[0], leaves[1], ends)]
    expected += torch.autograd.grad(expected[0].square().sum(), leaves)
    ours = [t.detach().to("polyhal").requires_grad_() for t in (x, weight.mT)]
    rows = torch.compile(lambda *operands: torch.ops.polyhal_tests.rows(*operands), backend="polyhal", fullgraph=True)
    found = [rows(*ours, torch.tensor(ends, device="polyhal"))]
    found += torch.autograd.grad(found[0].square().sum(), ours)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=1e-5 * b.abs().max().item())


def test_a_step_routes_rows_to_other_groups_in_each_run() -> None:
    x, weight = (t.to("polyhal") for t in _operands())

    @polyhal.torch.jit(warm_up=False)
    def step(x: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        order = torch.argsort(expert, stable=True)
        counts = torch.histc(expert.int(), bins=4, min=0, max=3)
        return torch._grouped_mm(x[order], weight.mT, offs=counts.cumsum(0, dtype=torch.int32))

    for seed in range(5):
        expert = torch.randint(4, (8,), generator=torch.Generator().manual_seed(seed))
        order, ends = expert.argsort(stable=True), expert.bincount(minlength=4).cumsum(0).tolist()
        expected = _by_loop(x.cpu()[order], weight.mT.cpu(), ends)
        torch.testing.assert_close(step(x, expert.to("polyhal")).cpu(), expected, rtol=0, atol=1e-5)
    assert len(step.graphs) == 1
