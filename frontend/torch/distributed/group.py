"""PyTorch's process group of the device. It also takes tensors of the CPU, which programs mix with others.

Calls are complete when they return, also with `async_op=True`: the device has computed the tensors, and they have moved. Only
`isend` and `irecv` return before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ReduceOp, Store, Work

from polyhal.distributed import tensors
from polyhal.distributed.direct import direct
from polyhal.hal.collectives.collective import Kind, divided
from polyhal.hal.errors import message
from polyhal.tape.modes import no_grad
from polyhal.torch.conversion import to_polyhal
from polyhal.torch.device import NAME
from polyhal.torch.distributed.gloo import GlooGroup
from polyhal.torch.distributed.host_vectors import store, store_parts, to_host

_NAMES = {ReduceOp.SUM: "sum", ReduceOp.AVG: "mean", ReduceOp.MAX: "max", ReduceOp.MIN: "min"}
_ROW_BY_ROW: dict[Any, Any] = {
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
"""Reductions for which each rank gathers all arrays."""


def connect(store: Store, rank: int, size: int, timeout: timedelta) -> DeviceProcessGroup:
    """Connect the processes of a rendezvous."""
    return DeviceProcessGroup(GlooGroup(PrefixStore(NAME, store), rank, size, timeout))


class _Done(Work):
    """A call that ends when it is waited for, at the latest."""

    def __init__(self, results: Sequence[torch.Tensor], finish: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._results = [*results]
        self._finish = finish

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end of the call. Returns True."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True

    def is_completed(self) -> bool:
        """Return whether the call has ended."""
        return self._finish is None

    def is_success(self) -> bool:
        """Return whether the call has ended: errors are raised."""
        return self._finish is None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors."""
        return self._results

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Wait for the end of the call. Returns its results as a future."""
        self.wait()
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._results)
        return future


class _Received(_Done):
    """A message from one rank, or from any."""

    def __init__(self, result: torch.Tensor, finish: Callable[[], None], source: Callable[[], int]) -> None:
        super().__init__([result], finish)
        self._source = source

    def _source_rank(self) -> int:
        self.wait()
        return self._source()


_ProcessGroup: Any = ProcessGroup
"""PyTorch's class as Any: it declares overloads for programs, and PyTorch itself calls one of them."""


class DeviceProcessGroup(_ProcessGroup):  # type: ignore[misc]
    """The processes of a group. Methods have the names and arguments of PyTorch's C++ class."""

    def __init__(self, group: GlooGroup) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        self._names = ["", ""]

    def _set_group_name(self, name: str) -> None:
        self._names[0] = name

    def _set_group_desc(self, description: str) -> None:
        self._names[1] = description

    @property
    def group_name(self) -> str:
        """Return the name that PyTorch has given to the group."""
        return self._names[0]

    @property
    def group_desc(self) -> str:
        """Return PyTorch's description of the group."""
        return self._names[1]

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """Return the name of the backend."""
        return NAME

    # --- reductions -------------------------------------------------------------------------------------------------

    def allreduce(self, xs: Sequence[torch.Tensor], opts: Any = None) -> _Done:
        """Replace tensors by their reductions over all ranks."""
        for x in xs:
            self._reduce(x, _op(opts))
        return _Done(xs)

    def allreduce_coalesced(self, xs: Sequence[torch.Tensor], opts: Any = None) -> _Done:
        """Replace tensors by their reductions over all ranks."""
        return self.allreduce(xs, opts)

    def reduce(self, xs: Sequence[torch.Tensor], opts: Any) -> _Done:
        """Replace tensors by their reductions over all ranks, on one rank."""
        for x in xs:
            self._reduce(x if self._group.rank == opts.rootRank else x.detach().clone(), opts.reduceOp)
        return _Done(xs)

    def _reduce(self, x: torch.Tensor, op: Any) -> None:
        """Replace a tensor by its reduction over all ranks."""
        name = _name(op)
        if name is not None and not x.is_complex():
            if self._direct(Kind.ALL_REDUCE, x, x, divided(x.numel(), self._group.size), op=name):
                return
            if x.device.type == NAME:
                tensors.reduce_by_host(to_polyhal(x), name, self._group)
                torch.autograd.graph.increment_version(x)
                return
        values = to_host(torch.view_as_real(x) if x.is_complex() and name in ("sum", "mean") else x)
        self._reduce_host(values, op)
        store(x, values)

    def _direct(
        self,
        kind: Kind,
        x: torch.Tensor,
        output: torch.Tensor,
        counts: Sequence[int],
        *,
        op: str = "sum",
        root: int = 0,
    ) -> bool:
        """Run a collective between the devices, if all ranks agree. Return whether it has run."""
        flat = None
        if x.device.type == NAME and output.device.type == NAME:
            flat = to_polyhal(x.detach().contiguous()).reshape(-1)
        result = direct(kind, flat, counts, x.element_size(), self._group, op=op, root=root)
        if result is None:
            return False
        with no_grad():
            to_polyhal(output).copy_(result.reshape(tuple(output.shape)))
        torch.autograd.graph.increment_version(output)
        return True

    def _reduce_host(self, values: np.ndarray, op: Any) -> None:
        name = _name(op)
        if name is None:
            rows = np.empty(self._group.size * values.size, values.dtype)
            self._group.all_gather(values, rows, [values.size] * self._group.size)
            values[:] = _row_by_row(op).reduce(rows.reshape(self._group.size, -1), axis=0)
            return
        self._group.all_reduce(values, name)

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> _Done:
        """Store this rank's parts of the reductions of all ranks' parts."""
        for output, parts in zip(outputs, inputs, strict=True):
            self._reduce_scatter(output, [to_host(x) for x in parts], opts)
        return _Done(outputs)

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> _Done:
        name = _name(_op(opts))
        counts = [output.numel()] * self._group.size
        if (
            source.is_complex()
            or name is None
            or not self._direct(Kind.REDUCE_SCATTER, source, output, counts, op=name)
        ):
            self._reduce_scatter(output, np.split(to_host(source), self._group.size), opts)
        return _Done([output])

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> _Done:
        """Store this rank's parts of the reductions of whole tensors."""
        for output, source in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, source, opts)
        return _Done(outputs)

    reduce_scatter_single = _reduce_scatter_base  # since PyTorch 2.13
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter(self, output: torch.Tensor, parts: Sequence[np.ndarray], opts: Any) -> None:
        op = _op(opts)
        name = _name(op)
        source, counts = np.concatenate(parts), [part.size for part in parts]
        if name is None:
            self._reduce_host(source, op)
            start = sum(counts[: self._group.rank])
            own = source[start : start + counts[self._group.rank]]
        else:
            own = np.empty(counts[self._group.rank], source.dtype)
            self._group.reduce_scatter(source, own, counts, name)
        store(output, own)

    # --- copies -----------------------------------------------------------------------------------------------------

    def broadcast(self, xs: Sequence[torch.Tensor], opts: Any) -> _Done:
        """Replace tensors by one rank's."""
        for x in xs:
            counts = divided(x.numel(), self._group.size)
            if not x.is_complex() and self._direct(Kind.BROADCAST, x, x, counts, root=opts.rootRank):
                continue
            values = to_host(x)
            self._group.broadcast(values, opts.rootRank)
            if self._group.rank != opts.rootRank:
                store(x, values)
        return _Done(xs)

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> _Done:
        """Store the tensors of all ranks."""
        for parts, x in zip(outputs, inputs, strict=True):
            self._gather(parts, x)
        return _Done([x for parts in outputs for x in parts])

    def _allgather_base(self, output: torch.Tensor, x: torch.Tensor, opts: Any = None) -> _Done:
        counts = [x.numel()] * self._group.size
        if x.is_complex() or not self._direct(Kind.ALL_GATHER, x, output, counts):
            values = to_host(x)
            everyone = np.empty(output.numel(), values.dtype)
            self._group.all_gather(values, everyone, counts)
            store(output, everyone)
        return _Done([output])

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> _Done:
        """Store the tensors of all ranks one after another."""
        for output, x in zip(outputs, inputs, strict=True):
            self._allgather_base(output, x)
        return _Done(outputs)

    all_gather_single = _allgather_base  # since PyTorch 2.13
    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any) -> _Done:
        """Store the tensors of all ranks on one of them."""
        for i, x in enumerate(inputs):
            self._gather(outputs[i] if self._group.rank == opts.rootRank else (), x, opts.rootRank)
        return _Done([x for parts in outputs for x in parts])

    def _gather(self, parts: Sequence[torch.Tensor], x: torch.Tensor, root: int | None = None) -> None:
        """Write the tensors of all ranks to `parts`, or only on the rank `root`. Without a root, their sizes may differ."""
        values = to_host(x)
        if root is not None:
            everyone = np.empty(values.size * len(parts), values.dtype) if self._group.rank == root else None
            self._group.gather(values, everyone, [values.size] * self._group.size, root)
        else:
            everyone = np.empty(sum(part.numel() for part in parts), values.dtype)
            self._group.all_gather(values, everyone, [part.numel() for part in parts])
        if everyone is not None:
            store_parts(parts, everyone)

    def scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any) -> _Done:
        """Store this rank's parts of one rank's tensors."""
        for i, output in enumerate(outputs):
            own = to_host(output)
            source = np.concatenate([to_host(x) for x in inputs[i]]) if self._group.rank == opts.rootRank else None
            self._group.scatter(source, own, [own.size] * self._group.size, opts.rootRank)
            store(output, own)
        return _Done(outputs)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> _Done:
        """Send a tensor to each rank, and store one from each."""
        source = np.concatenate([to_host(x) for x in inputs])
        target = np.empty(sum(x.numel() for x in outputs), source.dtype)
        self._group.all_to_all(source, [x.numel() for x in inputs], target, [x.numel() for x in outputs])
        store_parts(outputs, target)
        return _Done(outputs)

    def alltoall_base(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_rows: Sequence[int],
        source_rows: Sequence[int],
        opts: Any = None,
    ) -> _Done:
        """Send rows to each rank, and store rows from each."""
        given, ranks = to_host(source), self._group.size
        target = np.empty(output.numel(), given.dtype)
        self._group.all_to_all(given, _parts(source, source_rows, ranks), target, _parts(output, output_rows, ranks))
        store(output, target)
        return _Done([output])

    all_to_all_single = alltoall_base  # since PyTorch 2.13

    # --- messages ---------------------------------------------------------------------------------------------------

    def send(self, xs: Sequence[torch.Tensor], to: int, tag: int) -> _Done:
        """Start to send a tensor to a rank."""
        (x,) = xs
        return _Done(xs, self._group.start_send(to_host(x).view(np.uint8), to, tag))

    def recv(self, xs: Sequence[torch.Tensor], source: int, tag: int) -> _Done:
        """Start to receive a tensor from a rank."""
        return self._receive(xs, source, tag)

    def recv_anysource(self, xs: Sequence[torch.Tensor], tag: int) -> _Done:
        """Start to receive a tensor from any rank."""
        return self._receive(xs, None, tag)

    def _receive(self, xs: Sequence[torch.Tensor], source: int | None, tag: int) -> _Done:
        (x,) = xs
        values = to_host(x)
        wait, sender = self._group.start_receive(values.view(np.uint8), source, tag)

        def finish() -> None:
            wait()
            store(x, values)

        return _Received(x, finish, sender)

    def barrier(self, opts: Any = None) -> _Done:
        """Wait for all ranks."""
        self._group.barrier()
        return _Done(())

    def abort(self) -> None:
        """End the connections: calls of the other ranks raise ProcessGroupError."""
        self._group.abort("")

    def shutdown(self) -> None:
        """Close the connections."""
        self._group.close()


def _op(opts: Any) -> Any:
    return ReduceOp.SUM if opts is None else opts.reduceOp


def _name(op: Any) -> str | None:
    """Return Polyhal's name of a reduction, None for others."""
    return next((name for known, name in _NAMES.items() if op == known), None)


def _row_by_row(op: Any) -> Any:
    found = next((function for known, function in _ROW_BY_ROW.items() if op == known), None)
    if found is None:
        expected = "SUM, AVG, MAX, MIN, PRODUCT, BAND, BOR or BXOR"
        raise ValueError(message("all_reduce", f"the reduction is {op}", expected=expected))
    return found


def _parts(x: torch.Tensor, rows: Sequence[int], ranks: int) -> list[int]:
    """Return the number of elements of each rank's part; rows are divided evenly if there are no sizes."""
    row = x.numel() // x.shape[0] if x.shape[0] else 0
    return [n * row for n in rows] if rows else [x.numel() // ranks] * ranks
