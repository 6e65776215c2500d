"""Groups of devices, and differentiable collectives among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal import functions as ops
from polyhal.hal.collectives.collective import Collective, Kind, Reduction, divided, reduction_of
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError, DeviceMismatchError, ShapeError, UnsupportedDTypeError, message
from polyhal.hal.system.communicators.open import open_communicator
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.tape.function import Rule, attach, opaque
from polyhal.tape.rules import zeros
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType

_ADJOINTS = {
    Kind.ALL_REDUCE: Kind.ALL_REDUCE,
    Kind.REDUCE: Kind.BROADCAST,
    Kind.BROADCAST: Kind.REDUCE,
    Kind.SCATTER: Kind.GATHER,
    Kind.GATHER: Kind.SCATTER,
    Kind.ALL_GATHER: Kind.REDUCE_SCATTER,
    Kind.REDUCE_SCATTER: Kind.ALL_GATHER,
}
"""Adjoint collective: maps gradients of the results to gradients of the operands."""


class Group:
    """Devices that combine and exchange tensors. Participants are numbered in order, over all processes.

    Collectives take and return one tensor per device of this process. They are differentiable, are recorded in captured
    steps, and are bitwise reproducible from run to run and equal on all participants: sums are taken in the order of the
    participants, on devices of any kind.

    >>> group = polyhal.parallel.Group(["numpy", "numpy:no_f64"])
    >>> a, b = polyhal.tensor([1.0, 2.0], device="numpy"), polyhal.tensor([3.0, 4.0], device="numpy:no_f64")
    >>> [x.tolist() for x in group.all_reduce([a, b])]
    [[4.0, 6.0], [4.0, 6.0]]
    """

    def __init__(self, devices: str | Sequence[Device | str], processes: ProcessGroup | None = None) -> None:
        """`devices` are names or open devices, each once, or a pattern such as "gpu*".

        With `processes`, such as `polyhal.distributed.process_group()`, the devices of all processes participate; all
        processes make the same calls in the same order. Raises ValueError, DeviceUnavailableError, and ProcessGroupError if a
        process has exited.
        """
        self.processes = processes
        self.communicator = open_communicator(open_devices(devices), processes)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of this process."""
        return self.communicator.devices

    @property
    def size(self) -> int:
        """Number of participants in all processes."""
        return self.communicator.size

    @property
    def first(self) -> int:
        """Number of this process's first participant."""
        return self.communicator.first

    # --- collectives ------------------------------------------------------------------------------------------------

    def all_reduce(self, tensors: Sequence[Tensor], op: str = "sum") -> list[Tensor]:
        """Reduce tensors of one shape (...) and dtype elementwise. Every participant receives the result (...).

        `op` is "sum", "mean", "max" or "min"; sums of integers wrap, and "mean" takes floating-point tensors. Raises
        ShapeError, UnsupportedDTypeError, DeviceMismatchError, and ValueError for another `op`.
        """
        shape = self._one_shape("all_reduce", tensors)
        counts = divided(math.prod(shape), self.size)
        return self._reduced(Kind.ALL_REDUCE, counts, op, tensors, lambda i: shape)

    def reduce(self, tensors: Sequence[Tensor], root: int = 0, op: str = "sum") -> Tensor | None:
        """Reduce like `all_reduce`. Returns the result (...) on participant `root`; None if that is in another process."""
        shape = self._one_shape("reduce", tensors)
        counts = divided(math.prod(shape), self.size)
        results = self._reduced(Kind.REDUCE, counts, op, tensors, lambda i: shape, self._member("reduce", root))
        return results[0] if results else None

    def broadcast(self, tensor: Tensor, root: int = 0) -> list[Tensor]:
        """Copy a tensor (...) of participant `root` to every participant.

        Raises DeviceMismatchError if the tensor is on another device.
        """
        self._check_home("broadcast", tensor, self._member("broadcast", root))
        collective = Collective(Kind.BROADCAST, divided(tensor.size, self.size), root=root)
        return self._apply(collective, [tensor], lambda i: tensor.shape)

    def scatter(self, tensor: Tensor, root: int = 0, sizes: Sequence[int] | None = None, axis: int = 0) -> list[Tensor]:
        """Divide a tensor of participant `root` along `axis`: participant i receives `sizes[i]` rows (default: equal numbers).

        Raises ShapeError unless the sizes add up to the length of the axis, and DeviceMismatchError.
        """
        self._check_home("scatter", tensor, self._member("scatter", root))
        rows = ops.moveaxis(tensor, axis, 0)
        lengths = self._lengths("scatter", rows.shape[0], sizes)
        collective = Collective(Kind.SCATTER, _counts(lengths, rows.shape), root=root)
        parts = self._apply(collective, [rows], lambda i: (lengths[i], *rows.shape[1:]))
        return [ops.moveaxis(p, 0, axis) for p in parts]

    def gather(self, tensors: Sequence[Tensor], root: int = 0, axis: int = 0) -> Tensor | None:
        """Join the participants' tensors along `axis`, where their lengths may differ.

        Returns the result on participant `root`; None if that is in another process. Raises ShapeError, UnsupportedDTypeError.
        """
        rows, counts, shape = self._rows("gather", tensors, axis)
        collective = Collective(Kind.GATHER, counts, root=self._member("gather", root))
        joined = self._apply(collective, rows, lambda i: shape)
        return ops.moveaxis(joined[0], 0, axis) if joined else None

    def all_gather(
        self, tensors: Sequence[Tensor], axis: int = 0, *, sizes: Sequence[int] | None = None, temporary: bool = False
    ) -> list[Tensor]:
        """Join the participants' tensors like `gather`. Every participant receives the result.

        `sizes` are the lengths along `axis` of the tensors of all participants; with them processes do not exchange lengths
        first. A captured step frees a `temporary` result between distant uses, and regathers it.
        """
        rows, counts, shape = self._rows("all_gather", tensors, axis, sizes)
        joined = self._apply(Collective(Kind.ALL_GATHER, counts, temporary=temporary), rows, lambda i: shape)
        return [ops.moveaxis(x, 0, axis) for x in joined]

    def reduce_scatter(
        self, tensors: Sequence[Tensor], op: str = "sum", sizes: Sequence[int] | None = None, axis: int = 0
    ) -> list[Tensor]:
        """Reduce like `all_reduce`; participant i receives `sizes[i]` rows along `axis` (default: equal numbers).

        Raises ShapeError, UnsupportedDTypeError, DeviceMismatchError, and ValueError for another `op`.
        """
        self._one_shape("reduce_scatter", tensors)
        rows = [ops.moveaxis(x, axis, 0) for x in tensors]
        shape = rows[0].shape
        lengths = self._lengths("reduce_scatter", shape[0], sizes)
        counts = _counts(lengths, shape)
        parts = self._reduced(Kind.REDUCE_SCATTER, counts, op, rows, lambda i: (lengths[i], *shape[1:]))
        return [ops.moveaxis(p, 0, axis) for p in parts]

    def barrier(self) -> None:
        """Wait until all participants have completed all work that was enqueued before."""
        self.communicator.barrier()

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _reduced(
        self, kind: Kind, counts: tuple[int, ...], op: str, tensors: Sequence[Tensor], shape: Any, root: int = 0
    ) -> list[Tensor]:
        mean = op == "mean"
        dtype = tensors[0].dtype
        if mean and not (dtype.is_floating_point or dtype.is_complex):
            problem = f"the mean of {dtype.name} tensors"
            raise UnsupportedDTypeError(message(kind.value, problem, expected="floating-point tensors", fix="use sum"))
        reduction = reduction_of("sum" if mean else op, kind.value)
        results = self._apply(Collective(kind, counts, reduction, root), tensors, shape)
        return [x / self.size for x in results] if mean else results

    def _apply(self, collective: Collective, tensors: Sequence[Tensor], shape: Any) -> list[Tensor]:
        """Apply a collective to the participants' operands; `shape` maps a participant to the shape of its result."""
        dtype = tensors[0].dtype
        if dtype.is_complex:
            if collective.reduction is not Reduction.SUM:
                problem = f"{dtype.name} numbers are not ordered"
                raise UnsupportedDTypeError(message(collective.kind.value, problem, expected="a sum or mean"))
            real, imag = (self._apply(collective, [p(x) for x in tensors], shape) for p in (ops.real, ops.imag))
            return [dispatch.frontend.join(re, im) for re, im in zip(real, imag, strict=True)]
        vectors = [x if x.ndim == 1 and x.is_contiguous else ops.contiguous(x).reshape(-1) for x in tensors]
        results = self._communicate(collective, dtype, vectors)
        members = [self.first + i for i, _ in self.communicator.targets(collective)]
        shapes = [shape(i) for i in members]
        return [x if x.shape == s else x.reshape(s) for s, x in zip(shapes, results, strict=True)]

    def _communicate(self, collective: Collective, dtype: DType, vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        executor = dispatch.thread.executor
        detached = tuple(x.detach() if x.requires_grad else x for x in vectors)
        results: tuple[Tensor, ...] = executor.communicate(collective, self.communicator, dtype, detached)
        if dispatch.thread.grad_enabled and any(x.requires_grad for x in vectors):
            op, rule = opaque(collective.kind.value, len(results)), self._rule(collective, dtype)
            attach(op, tuple(vectors), results, rule, fresh=True)
        return results

    def _rule(self, collective: Collective, dtype: DType) -> Rule:
        def gradients(node: Any, grads: list[Tensor | None], needs: tuple[bool, ...]) -> Any:
            if collective.reduction is not Reduction.SUM:
                problem = f"the gradient of a {collective.reduction.value} over devices"
                raise AutogradError(message(collective.kind.value, problem, fix="reduce with sum or mean"))
            adjoint = collective._replace(kind=_ADJOINTS[collective.kind], temporary=False)
            devices = [self.devices[i] for i, _ in self.communicator.targets(collective)]
            filled = [
                zeros(spec, device) if g is None else ops.contiguous(g)
                for g, spec, device in zip(grads, node.outputs, devices, strict=True)
            ]
            return self._communicate(adjoint, dtype, filled)

        return gradients

    # --- checks -----------------------------------------------------------------------------------------------------

    def _one_shape(self, name: str, tensors: Sequence[Tensor]) -> tuple[int, ...]:
        """Return the shape of all tensors. Raises ShapeError if they differ."""
        self._check(name, tensors)
        shapes = {x.shape for x in tensors}
        if len(shapes) > 1:
            raise ShapeError(message(name, f"got shapes {sorted(shapes)}", expected="tensors of one shape"))
        return tensors[0].shape

    def _check(self, name: str, tensors: Sequence[Tensor]) -> None:
        """Raise unless there is one tensor on each device, all of one dtype."""
        if len(tensors) != len(self.devices):
            problem = f"got {len(tensors)} tensors"
            expected = f"{len(self.devices)}, one per device of {self.communicator}"
            raise ShapeError(message(name, problem, expected=expected))
        for i, x in enumerate(tensors):
            self._check_home(name, x, self.first + i)
        dtypes = sorted({x.dtype.name for x in tensors})
        if len(dtypes) > 1:
            problem = f"got {' and '.join(dtypes)}"
            raise UnsupportedDTypeError(message(name, problem, expected="tensors of one dtype", fix="cast them"))

    def _check_home(self, name: str, x: Tensor, member: int) -> None:
        own = member - self.first
        if not 0 <= own < len(self.devices):
            problem = f"device {member} belongs to another process"
            raise ValueError(message(name, problem, expected=f"a device of this process, {self.communicator}"))
        if x.device is not self.devices[own]:
            raise DeviceMismatchError(
                message(
                    name,
                    f"the tensor of device {member} is on {x.device}",
                    expected=f"a tensor on {self.devices[own]}",
                    fix=f"move it with .to({self.devices[own].name!r})",
                )
            )

    def _member(self, name: str, root: int) -> int:
        if not 0 <= root < self.size:
            raise ValueError(message(name, f"root is {root}", expected=f"a device number from 0 to {self.size - 1}"))
        return root

    def _lengths(self, name: str, length: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
        lengths = divided(length, self.size) if sizes is None else tuple(sizes)
        if len(lengths) != self.size or min(lengths) < 0 or sum(lengths) != length:
            expected = f"{self.size} sizes that add up to {length}"
            raise ShapeError(message(name, f"sizes are {list(lengths)}", expected=expected))
        return lengths

    def _rows(
        self, name: str, tensors: Sequence[Tensor], axis: int, sizes: Sequence[int] | None = None
    ) -> tuple[list[Tensor], tuple[int, ...], tuple[int, ...]]:
        """Return the tensors with `axis` first, the elements of all participants, and the shape of the joined tensor."""
        self._check(name, tensors)
        rows = [ops.moveaxis(x, axis, 0) for x in tensors]
        if len({x.shape[1:] for x in rows}) > 1:
            problem = f"got shapes {[x.shape for x in tensors]}"
            raise ShapeError(message(name, problem, expected=f"shapes that differ only along axis {axis}"))
        own = tuple(x.shape[0] for x in rows)
        lengths = self.communicator.all_lengths(own) if sizes is None else tuple(sizes)
        if len(lengths) != self.size or lengths[self.first : self.first + len(own)] != own:
            expected = f"{self.size} sizes, with {list(own)} at index {self.first}"
            raise ShapeError(message(name, f"sizes are {list(lengths)}", expected=expected))
        return rows, _counts(lengths, rows[0].shape), (sum(lengths), *rows[0].shape[1:])

    def __deepcopy__(self, memo: object) -> Group:
        """Return the group itself: copies of a module share it."""
        return self

    def __repr__(self) -> str:
        return f"Group({', '.join(repr(d.name) for d in self.devices)})"


def _counts(lengths: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of elements of parts with `lengths` rows of a tensor of `shape`."""
    return tuple(n * math.prod(shape[1:]) for n in lengths)
