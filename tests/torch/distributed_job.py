"""One of two processes that `test_torch_distributed.py` starts: it prints a line for each check that has passed.

`python distributed_job.py RANK PORT`. The last check kills rank 1, and the error of rank 0 ends its process.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RANK, PORT = int(sys.argv[1]), sys.argv[2]
SIZE = 2
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64)
CHECKS: list[Callable[..., None]] = []


def check(function: Callable[..., None]) -> Callable[..., None]:
    """Register a check of a collective, called with a device and a dtype."""
    CHECKS.append(function)
    return function


class Case:
    """Tensors of a device and dtype. Those of rank r have the elements (r + 1) * 1, 2, ..., which half precision can hold."""

    def __init__(self, place: str, dtype: torch.dtype) -> None:
        self.place, self.dtype = place, dtype

    def of(self, rank: int, n: int) -> torch.Tensor:
        return ((rank + 1) * torch.arange(1, n + 1)).to(self.dtype)

    def own(self, n: int) -> torch.Tensor:
        return self.of(RANK, n).to(self.place)

    def empty(self, n: int) -> torch.Tensor:
        return torch.zeros(n, dtype=self.dtype, device=self.place)

    def sum(self, n: int) -> torch.Tensor:
        return self.of(0, n) + self.of(1, n)


def equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found.cpu(), expected), (found.cpu(), expected)


@check
def all_reduce(c: Case) -> None:
    x = c.own(6)
    dist.all_reduce(x)
    equal(x, c.sum(6))
    later = dist.all_reduce(x, async_op=True)
    later.wait()
    equal(x, 2 * c.sum(6))
    columns = c.own(6).view(2, 3).T
    dist.all_reduce(columns)
    equal(columns, c.sum(6).view(2, 3).T)


@check
def other_reductions(c: Case) -> None:
    if c.dtype.is_complex:
        return
    for op, expected in (
        (dist.ReduceOp.MAX, c.of(1, 3)),
        (dist.ReduceOp.MIN, c.of(0, 3)),
        (dist.ReduceOp.PRODUCT, c.of(0, 3) * c.of(1, 3)),
    ):
        x = c.own(3)
        dist.all_reduce(x, op=op)
        equal(x, expected)
    if c.dtype.is_floating_point:
        x = c.own(3)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        equal(x, c.sum(3) / 2)
        return
    with pytest.raises(TypeError, match=r"mean of .*expected a floating dtype"):
        dist.all_reduce(c.own(3), op=dist.ReduceOp.AVG)


@check
def reduce(c: Case) -> None:
    x = c.own(3)
    dist.reduce(x, 1)
    equal(x, c.sum(3) if RANK else c.of(0, 3))


@check
def reduce_scatter(c: Case) -> None:
    out = c.empty(2)
    dist.reduce_scatter(out, [c.own(2), 2 * c.own(2)])
    equal(out, (RANK + 1) * c.sum(2))
    dist.reduce_scatter_tensor(out, c.own(4))
    equal(out, c.sum(4).chunk(2)[RANK])


@check
def broadcast(c: Case) -> None:
    x = c.own(3)
    dist.broadcast(x, 1)
    equal(x, c.of(1, 3))


@check
def all_gather(c: Case) -> None:
    parts = [c.empty(2), c.empty(2)]
    dist.all_gather(parts, c.own(2))
    out = c.empty(4)
    dist.all_gather_into_tensor(out, c.own(2))
    equal(torch.cat(parts), torch.cat([c.of(0, 2), c.of(1, 2)]))
    equal(out, torch.cat([c.of(0, 2), c.of(1, 2)]))


@check
def gather_and_scatter(c: Case) -> None:
    parts = [c.empty(2), c.empty(2)]
    dist.gather(c.own(2), parts if RANK == 1 else None, 1)
    if RANK == 1:
        equal(torch.cat(parts), torch.cat([c.of(0, 2), c.of(1, 2)]))
    out = c.empty(2)
    dist.scatter(out, [c.own(2), 2 * c.own(2)] if RANK == 0 else None, 0)
    equal(out, (RANK + 1) * c.of(0, 2))


@check
def all_to_all(c: Case) -> None:
    parts = [c.empty(1), c.empty(2)]
    lengths = [RANK + 1] * 2
    dist.all_to_all([x[: RANK + 1] for x in (c.own(2), c.own(2))], [*c.own(3).split([1, 2])])
    dist.all_to_all_single(parts[RANK].new_zeros(2 * (RANK + 1)), c.own(3), lengths, [1, 2])
    out = c.empty(4)
    dist.all_to_all_single(out, c.own(4))
    equal(out, torch.cat([c.of(r, 4).chunk(2)[RANK] for r in range(SIZE)]))


@check
def messages(c: Case) -> None:
    other = 1 - RANK
    x, out = c.own(3), c.empty(3)
    works: list[Any] = [dist.isend(x, other), dist.irecv(out, other)]
    for work in works:
        work.wait()
    equal(out, c.of(other, 3))
    if RANK == 0:
        dist.send(x, 1)
    else:
        assert dist.recv(out) == 0
        equal(out, c.of(0, 3))


def objects() -> None:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, {"rank": RANK})
    assert found == [{"rank": 0}, {"rank": 1}]
    dist.barrier()


def groups_and_meshes() -> None:
    group = dist.new_group([0, 1])
    x = torch.ones(2, device="polyhal")
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2.0, 2.0]
    assert init_device_mesh("polyhal", (SIZE,)).get_group().size() == SIZE


def many_elements() -> None:
    x = torch.arange(5 << 20, device="polyhal", dtype=torch.float32)
    expected = 2 * x.cpu()
    dist.all_reduce(x)
    equal(x, expected)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def trained(model: nn.Module, rows: slice) -> nn.Module:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    numbers = torch.Generator().manual_seed(1)
    for _ in range(5):
        x = torch.randn(6, 8, generator=numbers)[rows].to("polyhal")
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model


def compare(model: nn.Module) -> None:
    """Each rank trains with half of the rows: the mean of both gradients is that of one process with all rows."""
    found = trained(model, slice(3 * RANK, 3 * RANK + 3))
    whole = trained(network().to("polyhal"), slice(6))
    for p, q in zip(found.parameters(), whole.parameters(), strict=True):
        full: Any = p.full_tensor() if hasattr(p, "full_tensor") else p
        # Sums of 6 rows in another order: gradients differ by some units of 6e-8, hundredfold where terms cancel. Adam divides
        # them by their size and multiplies by 0.01, in 5 steps: 3e-7, and 1e-7 for the rounding of parameters below 1.
        torch.testing.assert_close(full.detach().cpu(), q.detach().cpu(), rtol=0, atol=4e-7)


def data_parallel() -> None:
    compare(DistributedDataParallel(network().to("polyhal")))


def sharded() -> None:
    model = network().to("polyhal")
    for layer in (model[0], model[3]):  # type: ignore[index]
        fully_shard(layer)
    compare(fully_shard(model))


def main() -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT)
    dist.init_process_group("polyhal", rank=RANK, world_size=SIZE)
    for collective, place, dtype in itertools.product(CHECKS, ("polyhal", "cpu"), DTYPES):
        collective(Case(place, dtype))
        print(f"{collective.__name__} {place} {dtype}", flush=True)
    for program in (objects, groups_and_meshes, many_elements, data_parallel, sharded):
        program()
        print(program.__name__, flush=True)
    dist.barrier()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        dist.all_reduce(torch.ones(2, device="polyhal"))


if __name__ == "__main__":
    main()
