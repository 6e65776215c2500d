"""In-place and indexed writes of PyTorch programs that overlap their source equal those on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import polyhal.torch as pt
from polyhal.torch import tensors

Write = Callable[[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]], Any]
"""Function that writes to the first argument, (6, 6), and passes its source through the second."""

OVERLAPPING: dict[str, Write] = {
    "rows": lambda x, c: x.__setitem__(slice(1, None), c(x[:-1])),
    "columns": lambda x, c: x.__setitem__((slice(None), slice(1, None)), c(x[:, :-1])),
    "transposed": lambda x, c: x.copy_(c(x.T)),
    "reversed": lambda x, c: x.copy_(c(x.flip(0))),
    "rows added": lambda x, c: x[1:].add_(c(x[:-1])),
    "the transpose added": lambda x, c: x.add_(c(x.T)),
    "out": lambda x, c: torch.add(c(x[:-1]), 1, out=x[1:]),
}

INDEXED: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "rows": lambda x, d: x.__setitem__(torch.tensor([1, -1], device=d), torch.ones(2, 6, device=d)),
    "elements": lambda x, d: x.__setitem__((torch.tensor([1, -1], device=d), torch.tensor([0, 2], device=d)), 3.0),
    "columns": lambda x, d: x.__setitem__((slice(None), torch.tensor([1, -1], device=d)), 3.0),
    "a mask": lambda x, d: x.__setitem__(x > 20, 3.0),
    "a mask of rows": lambda x, d: x.__setitem__(x[:, 0] > 20, torch.arange(6.0, device=d)),
    "a mask, added": lambda x, d: x.index_put_((x > 20,), torch.ones(1, device=d), accumulate=True),
    "index_add_": lambda x, d: x.index_add_(1, torch.tensor([1, 1], device=d), torch.ones(6, 2, device=d)),
    "index_put_, added": lambda x, d: x.index_put_(
        (torch.tensor([1, 1], device=d),), torch.ones(2, 6, device=d), accumulate=True
    ),
    "index_fill_": lambda x, d: x.index_fill_(0, torch.tensor([1, 4], device=d), 2.0),
    "scatter_": lambda x, d: x.scatter_(1, torch.tensor([[0, 5], [2, 1]], device=d), torch.ones(2, 2, device=d)),
    "scatter_ of a number": lambda x, d: x.scatter_(0, torch.tensor([[3, 5]], device=d), 7.0),
    "scatter_ with a product": lambda x, d: x.scatter_(
        0, torch.tensor([[3, 5], [3, 1]], device=d), 2.0, reduce="multiply"
    ),
    "scatter_add_": lambda x, d: x.scatter_add_(
        0, torch.tensor([[3, 5], [3, 1]], device=d), torch.ones(2, 2, device=d)
    ),
    "scatter_add_ of a transpose": lambda x, d: x.T.scatter_add_(
        0, torch.tensor([[3, 5], [3, 1], [0, 2]], device=d), torch.ones(3, 2, device=d)
    ),
    "scatter_reduce_": lambda x, d: x.scatter_reduce_(
        1, torch.tensor([[0, 5], [0, 1]], device=d), torch.full((2, 2), 9.0, device=d), "amax", include_self=False
    ),
    "masked_fill_": lambda x, d: x.masked_fill_(x > 20, 3.0),
    "masked_fill_ of a transpose, by a tensor": lambda x, d: x.T.masked_fill_(x[0] > 2, torch.tensor(3.0, device=d)),
    "masked_scatter_": lambda x, d: x.masked_scatter_(x > 20, torch.arange(36.0, device=d)),
    "masked_scatter_ of a transpose": lambda x, d: x.T.masked_scatter_(x > 20, torch.arange(36.0, device=d)),
    "rows of a transpose": lambda x, d: x.T.__setitem__(torch.tensor([1, -1], device=d), torch.ones(2, 6, device=d)),
    "index_copy_ of a transpose": lambda x, d: x.T.index_copy_(
        0, torch.tensor([1, 0], device=d), torch.ones(2, 6, device=d)
    ),
}


def start() -> torch.Tensor:
    return torch.arange(36.0).reshape(6, 6)


def same(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("mode", ["eager", "recorded"])
def test_a_write_over_its_own_source_reads_it_before_or_is_refused(torch_device: str, name: str, mode: str) -> None:
    """PyTorch raises for some of these writes on the CPU. So does the device, except for forms with `out=`."""
    expected, x = start(), start().to(torch_device)
    try:
        OVERLAPPING[name](start(), same)
    except RuntimeError as error:
        refusal: str | None = str(error)
    else:
        refusal = None

    def write() -> None:
        OVERLAPPING[name](x, same)

    run = pt.jit(write) if mode == "recorded" else write
    if refusal is not None and name != "out":
        with pytest.raises(RuntimeError, match="single memory location"):
            run()
        assert "single memory location" in refusal
        torch.testing.assert_close(x.cpu(), expected)
        return
    for _ in range(4):
        run()
        OVERLAPPING[name](expected, torch.clone)
        torch.testing.assert_close(x.cpu(), expected)


@pytest.mark.parametrize("name", INDEXED)
def test_an_indexed_write_has_the_elements_of_the_cpu(torch_device: str, name: str) -> None:
    expected, x = start(), start().to(torch_device)
    INDEXED[name](x, torch_device)
    INDEXED[name](expected, "cpu")
    torch.testing.assert_close(x.cpu(), expected)


def test_an_indexed_write_takes_memory_proportional_to_the_written_elements(torch_device: str) -> None:
    x = torch.zeros(100_000, 32, device=torch_device)
    index, rows = torch.tensor([3, 70_000], device=torch_device), torch.ones(2, 32, device=torch_device)
    pool = tensors.unwrap(x).device.pool
    used = pool.used
    pool.reset_peak()
    x[index] = rows
    x.index_add_(0, index, rows)
    x.index_copy_(0, index, rows)
    x.scatter_(0, index[:, None], rows[:, :1])
    x.scatter_add_(0, index[:, None], rows[:, :1])
    x.T[:, index] = rows.T
    x.T.index_add_(1, index, rows.T)
    assert pool.peak - used < 100_000


@pytest.mark.filterwarnings("ignore:index_reduce")  # PyTorch's own, once in a process
@pytest.mark.parametrize("mode", ["eager", "recorded"])
def test_elements_that_no_index_names_keep_the_sign_of_their_zeros(torch_device: str, mode: str) -> None:
    def step(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.index_add(x, 0, index, src),
            torch.scatter_add(x, 0, index[:, None].expand(3, 2), src),
            torch.index_put(x, (index,), src, accumulate=True),
            torch.index_reduce(x, 0, index, src, "mean"),
        )

    operands = torch.full((5, 2), -0.0), torch.tensor([1, 3, 1]), torch.ones(3, 2)
    run = pt.jit(step) if mode == "recorded" else step
    for _ in range(2):
        for ours, theirs in zip(run(*(t.to(torch_device) for t in operands)), step(*operands), strict=True):
            assert torch.equal(torch.copysign(torch.ones(5, 2), ours.cpu()), torch.copysign(torch.ones(5, 2), theirs))
