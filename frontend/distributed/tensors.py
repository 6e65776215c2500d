"""Collectives on tensors among processes: directly between their devices, else through host memory, in chunks that overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from polyhal.distributed.direct import direct
from polyhal.distributed.job import process_group
from polyhal.hal.collectives.collective import Kind, divided
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError, message
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

CHUNK = 8 << 20
"""Bytes that are read from a device at a time: reading the next chunk overlaps with reducing the last one."""
_AHEAD = 2
"""Number of reads in flight."""
_REDUCTIONS = ("sum", "mean", "max", "min")


def all_reduce(tensor: Tensor, op: str = "sum", *, group: ProcessGroup | None = None) -> Tensor:
    """Replace `tensor`, of any shape and dtype, by the sum, mean, max or min over all ranks. Returns it.

    `group` defaults to the job's. Sums are taken in the order of the ranks, and are bit-identical on all ranks; sums and means
    of float16 and bfloat16 are rounded once. Raises ValueError for another `op`, UnsupportedDTypeError for a mean of
    integers, and ProcessGroupError if a rank is gone.
    """
    _check_tensor("all_reduce", tensor)
    group = process_group() if group is None else group
    if op not in _REDUCTIONS:
        raise ValueError(message("all_reduce", f"unknown reduction {op!r}", expected=", ".join(_REDUCTIONS)))
    if op == "mean" and tensor.dtype.kind != "float":
        raise UnsupportedDTypeError(message("all_reduce", f"a mean of {tensor.dtype}", expected="a floating dtype"))
    if tensor.dtype.kind == "complex":
        raise UnsupportedDTypeError(
            message("all_reduce", "a complex tensor", fix="reduce its real and imaginary parts")
        )
    with no_grad():
        flat = tensor.detach().reshape(-1)
        total = direct(Kind.ALL_REDUCE, flat, divided(flat.size, group.size), flat.dtype.itemsize, group, op=op)
        if total is None:
            reduce_by_host(tensor, op, group)
        else:
            tensor.copy_(total.reshape(tensor.shape))
    return tensor


def reduce_by_host(tensor: Tensor, op: str, group: ProcessGroup) -> None:
    """Replace `tensor` by its reduction over all ranks, in host memory. See `all_reduce`."""
    with no_grad():
        _store(tensor, [_reduced(group, part, host, op) for part, host in _chunks(tensor.detach().reshape(-1))])


def broadcast(tensor: Tensor, root: int = 0) -> Tensor:
    """Replace `tensor`, of any shape and dtype, by the tensor of the rank `root`. Returns it.

    Raises ValueError for a rank that does not exist, and ProcessGroupError if a rank is gone.
    """
    _check_tensor("broadcast", tensor)
    group = process_group()
    flat = tensor.detach().reshape(-1)
    received = direct(Kind.BROADCAST, flat, divided(flat.size, group.size), flat.dtype.itemsize, group, root=root)
    if received is not None:
        with no_grad():
            tensor.copy_(received.reshape(tensor.shape))
        return tensor
    host = _host(tensor) if group.rank == root else np.empty(tensor.size, tensor.dtype.numpy)
    group.broadcast(host, root)
    if group.rank != root:
        _replace(tensor, host)
    return tensor


def all_gather(tensor: Tensor, counts: Sequence[int] | None = None) -> Tensor:
    """Return the tensors (n, ...) of all ranks, concatenated along the first axis, on this tensor's device.

    Their lengths n are equal, unless `counts` contains one for each rank, 0 allowed. Raises ShapeError, ValueError, and
    ProcessGroupError if a rank is gone.
    """
    _check_tensor("all_gather", tensor)
    group = process_group()
    counts = _rows("all_gather", tensor, counts, group)
    row = _row(tensor)
    sizes = [n * row for n in counts]
    joined = direct(Kind.ALL_GATHER, tensor.detach().reshape(-1), sizes, tensor.dtype.itemsize, group)
    if joined is not None:
        return joined.reshape((sum(counts), *tensor.shape[1:]))
    target = np.empty(sum(sizes), tensor.dtype.numpy)
    group.all_gather(_host(tensor), target, sizes)
    return _tensor(target, (sum(counts), *tensor.shape[1:]), tensor)


def reduce_scatter(tensor: Tensor, op: str = "sum", counts: Sequence[int] | None = None) -> Tensor:
    """Return this rank's rows of the sum, mean, max or min of the tensors (n, ...) of all ranks.

    Rows are divided evenly, unless `counts` contains a number for each rank. Raises ShapeError, ValueError, and
    ProcessGroupError if a rank is gone.
    """
    _check_tensor("reduce_scatter", tensor)
    group = process_group()
    counts = _shares("reduce_scatter", tensor, counts, group)
    row = _row(tensor)
    sizes, shape = [n * row for n in counts], (counts[group.rank], *tensor.shape[1:])
    own = direct(Kind.REDUCE_SCATTER, tensor.detach().reshape(-1), sizes, tensor.dtype.itemsize, group, op=op)
    if own is not None:
        return own.reshape(shape)
    target = np.empty(sizes[group.rank], tensor.dtype.numpy)
    group.reduce_scatter(_host(tensor), target, sizes, op)
    return _tensor(target, shape, tensor)


def scatter(tensor: Tensor, counts: Sequence[int] | None = None, root: int = 0) -> Tensor:
    """Return this rank's rows of the tensor (n, ...) of the rank `root`; the other ranks pass one of equal shape and dtype.

    Rows are divided evenly, unless `counts` contains a number for each rank. Raises ShapeError, ValueError, and
    ProcessGroupError if a rank is gone.
    """
    _check_tensor("scatter", tensor)
    group = process_group()
    counts = _shares("scatter", tensor, counts, group)
    row = _row(tensor)
    target = np.empty(counts[group.rank] * row, tensor.dtype.numpy)
    source = _host(tensor) if group.rank == root else None
    group.scatter(source, target, [n * row for n in counts], root)
    return _tensor(target, (counts[group.rank], *tensor.shape[1:]), tensor)


def gather(tensor: Tensor, counts: Sequence[int] | None = None, root: int = 0) -> Tensor | None:
    """Return the tensors (n, ...) of all ranks, concatenated along the first axis, on the rank `root`; None on others.

    Their lengths n are equal, unless `counts` contains one for each rank, 0 allowed. Raises ShapeError, ValueError, and
    ProcessGroupError if a rank is gone.
    """
    _check_tensor("gather", tensor)
    group = process_group()
    counts = _rows("gather", tensor, counts, group)
    row = _row(tensor)
    target = np.empty(sum(counts) * row, tensor.dtype.numpy) if group.rank == root else None
    group.gather(_host(tensor), target, [n * row for n in counts], root)
    return None if target is None else _tensor(target, (sum(counts), *tensor.shape[1:]), tensor)


# --- between tensors and host memory ----------------------------------------------------------------------------------


def _chunks(flat: Tensor) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Yield chunks of a vector with their values, while the next chunks are being read."""
    step = max(1, CHUNK // flat.dtype.itemsize)
    reading: deque[tuple[Tensor, Future[np.ndarray]]] = deque()
    for start in range(0, flat.size, step):
        part = flat[start : start + step]
        reading.append((part, part.numpy_async()))
        if len(reading) > _AHEAD:
            part, future = reading.popleft()
            yield part, future.result()
    while reading:
        part, future = reading.popleft()
        yield part, future.result()


def _reduced(group: ProcessGroup, part: Tensor, host: np.ndarray, reduction: str) -> Tensor:
    values = np.ascontiguousarray(host).reshape(-1)
    if not values.flags.writeable:
        values = values.copy()
    group.all_reduce(values, reduction)
    return Tensor(values, device=part.device)


def _store(tensor: Tensor, parts: Sequence[Tensor]) -> None:
    """Copy consecutive parts of a tensor's elements to the tensor."""
    if len(parts) == 1:
        tensor.copy_(parts[0].reshape(tensor.shape))
        return
    flat = tensor.detach().reshape(-1)
    start = 0
    for part in parts:
        flat[start : start + part.size] = part
        start += part.size
    if parts and not tensor.is_contiguous:  # then `flat` is a copy
        tensor.copy_(flat.reshape(tensor.shape))


def _host(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy()).reshape(-1)


def _replace(tensor: Tensor, host: np.ndarray) -> None:
    with no_grad():
        tensor.copy_(_tensor(host, tensor.shape, tensor))


def _tensor(host: np.ndarray, shape: tuple[int, ...], like: Tensor) -> Tensor:
    return Tensor(host.reshape(shape), device=like.device)


def _check_tensor(name: str, tensor: Any) -> None:
    """Raise TypeError for anything but a tensor: every rank must pass one, not only the root."""
    if not isinstance(tensor, Tensor):
        expected = "a tensor on every rank, of one dtype and shape"
        raise TypeError(message(name, f"this rank passed a {type(tensor).__name__}", expected=expected))


def _row(tensor: Tensor) -> int:
    """Return the number of elements of a row."""
    return int(np.prod(tensor.shape[1:], dtype=np.int64))


def _rows(name: str, tensor: Tensor, counts: Sequence[int] | None, group: ProcessGroup) -> list[int]:
    """Return the number of rows of each rank. Raises ShapeError unless this rank's tensor has as many."""
    if tensor.ndim < 1:
        raise ShapeError(message(name, "a tensor of shape ()", expected="one or more axes", fix="use tensor[None]"))
    found = [tensor.shape[0]] * group.size if counts is None else [*counts]
    if len(found) != group.size or found[group.rank] != tensor.shape[0]:
        raise ShapeError(
            message(name, f"counts {found} for a tensor of shape {tensor.shape} on rank {group.rank} of {group.size}")
        )
    return found


def _shares(name: str, tensor: Tensor, counts: Sequence[int] | None, group: ProcessGroup) -> list[int]:
    """Return the numbers of rows into which a tensor is divided among the ranks."""
    if tensor.ndim < 1:
        raise ShapeError(message(name, "a tensor of shape ()", expected="one or more axes", fix="use tensor[None]"))
    found = [*divided(tensor.shape[0], group.size)] if counts is None else [*counts]
    if len(found) != group.size or sum(found) != tensor.shape[0]:
        raise ShapeError(message(name, f"counts {found} for a tensor of shape {tensor.shape} and {group.size} ranks"))
    return found
