"""Sequences of different lengths in one tensor: padded to a common length, or packed without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from polyhal import functions as ops
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn.functional.padding import pad
from polyhal.tensor import Tensor

Lengths = Tensor | Sequence[int]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences without padding, as `pack_padded_sequence` and `pack_sequence` make them.

    `data` (sum of lengths, ...) holds the first elements of all sequences, then all second ones, and so on, the longest
    sequence first; `batch_sizes`, int64 on the host, counts the sequences that reach each time step. `sorted_indices` is
    the order of the sequences and `unsorted_indices` its inverse; None if they were in order.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: object, **kwargs: object) -> PackedSequence:
        """Move the data to another device or dtype; the indices follow to the device. Arguments as for `Tensor.to`."""
        data = self.data.to(*args, **kwargs)  # type: ignore[arg-type]
        indices = (None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices))
        return PackedSequence(data, self.batch_sizes, *indices)

    def cpu(self) -> PackedSequence:
        """Move to the host."""
        return self.to(_host())


def _host() -> Device:
    return Device("numpy")


def _on_host(values: np.ndarray) -> Tensor:
    return Tensor(values.astype(np.int64), device=_host())


def _fail(function: str, problem: str, expected: str, fix: str = "") -> ShapeError:
    return ShapeError(message(function, problem, expected=expected, fix=fix))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the permutation that undoes a permutation of 0 to n-1; None for None."""
    return None if permutation is None else ops.argsort(permutation).to(permutation.dtype)


def _taken(x: Tensor, index: np.ndarray) -> Tensor:
    """Return the rows of `x` at each entry of `index`."""
    flat = ops.take(x, Tensor(index.reshape(-1).astype(np.int32), device=x.device), 0)
    return ops.reshape(flat, (*index.shape, *x.shape[1:]))


def pack_padded_sequence(
    input: Tensor, lengths: Lengths, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences that were padded to (T, B, ...), or (B, T, ...) with `batch_first`.

    Unless `enforce_sorted` is False, the lengths must not increase. Raises ShapeError.
    """
    known = np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else list(lengths), np.int64)
    length, batch = (input.shape[1], input.shape[0]) if batch_first else input.shape[:2]
    if known.shape != (batch,):
        raise _fail("pack_padded_sequence", f"{known.size} lengths for {batch} sequences", "one for each")
    if known.size and (known.min() < 1 or known.max() > length):
        raise _fail("pack_padded_sequence", f"lengths from {known.min()} to {known.max()}", f"from 1 to {length}")
    order = np.arange(batch) if enforce_sorted else np.argsort(-known, kind="stable")
    known = known[order]
    if np.any(np.diff(known) > 0):
        raise _fail("pack_padded_sequence", "the lengths increase", "the longest first", "pass enforce_sorted=False")
    times = np.arange(known[0] if batch else 0)
    steps, sequences = np.nonzero(times[:, None] < known)
    columns = order[sequences]
    index = columns * length + steps if batch_first else steps * batch + columns
    data = _taken(ops.reshape(input, (length * batch, *input.shape[2:])), index)
    batch_sizes = _on_host(np.sum(times[:, None] < known, axis=1))
    if enforce_sorted:
        return PackedSequence(data, batch_sizes)
    inverse = np.argsort(order, kind="stable")
    return PackedSequence(data, batch_sizes, *(Tensor(i, device=input.device) for i in (order, inverse)))


def sequence_lengths(batch_sizes: np.ndarray) -> np.ndarray:
    """Return the length of each sequence of a packed batch, from how many reach each time step."""
    sequences = np.arange(batch_sizes[0] if batch_sizes.size else 0)
    lengths: np.ndarray = np.sum(batch_sizes[:, None] > sequences, axis=0)
    return lengths


def padded(data: Tensor, batch_sizes: np.ndarray) -> Tensor:
    """Unpack rows to (T, B, ...) in sorted order. Rows after the end of a sequence are arbitrary, for callers to mask."""
    starts = np.cumsum(batch_sizes) - batch_sizes
    sequences = np.arange(batch_sizes[0])
    return _taken(data, np.where(sequences < batch_sizes[:, None], starts[:, None] + sequences, 0))


def packed(x: Tensor, batch_sizes: np.ndarray) -> Tensor:
    """Return the rows of (T, B, ...) in sorted order that belong to sequences: the inverse of `padded`."""
    steps, sequences = np.nonzero(np.arange(x.shape[1]) < batch_sizes[:, None])
    return _taken(ops.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])), steps * x.shape[1] + sequences)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return packed sequences padded to (T, B, ...), or (B, T, ...) with `batch_first`, and their lengths on the host.

    T is the length of the longest sequence, or `total_length`. Raises ValueError if that is less.
    """
    sizes = sequence.batch_sizes.numpy()
    length = len(sizes) if total_length is None else total_length
    if length < len(sizes):
        problem = f"total_length is {total_length}, the longest sequence {len(sizes)}"
        raise ValueError(message("pad_packed_sequence", problem, expected="at least that"))
    lengths = sequence_lengths(sizes)
    out = padded(sequence.data, np.pad(sizes, (0, length - len(sizes))))
    in_use = np.arange(length)[:, None] < lengths
    mask = Tensor(in_use.reshape(*in_use.shape, *(1,) * (out.ndim - 2)), device=out.device)
    out = ops.where(mask, out, padding_value)
    if sequence.unsorted_indices is not None:
        out = ops.take(out, sequence.unsorted_indices, 1)
        lengths = lengths[sequence.unsorted_indices.numpy()]
    return out.transpose(0, 1) if batch_first else out, _on_host(lengths)


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors (L, ...) of different lengths, padded to the longest, as (T, B, ...), or (B, T, ...).

    `padding_side` is right or left. Raises ValueError for another and for no sequences.

    >>> rows = [polyhal.tensor([1, 2]), polyhal.tensor([3])]
    >>> polyhal.nn.utils.rnn.pad_sequence(rows, batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    several = list(sequences)
    if padding_side not in ("left", "right") or not several:
        problem = f"{len(several)} sequences, padding_side {padding_side!r}"
        raise ValueError(message("pad_sequence", problem, expected="at least one sequence, left or right"))
    longest = max(s.shape[0] for s in several)
    filled = []
    for s in several:
        missing = longest - s.shape[0]
        widths = (missing, 0) if padding_side == "left" else (0, missing)
        filled.append(pad(s, [*(0,) * (2 * (s.ndim - 1)), *widths], "constant", padding_value) if missing else s)
    return ops.stack(filled, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Lengths, batch_first: bool = False) -> list[Tensor]:
    """Split padded sequences into a list of tensors of their lengths. Views."""
    known = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[i, :length] for i, length in enumerate(known)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (L, ...) of different lengths, the longest first unless `enforce_sorted` is False."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Split packed sequences into a list of tensors of their lengths."""
    sequences, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(sequences, lengths, batch_first=True)


__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]
