"""Data parallelism over processes: losses that are sums of each process's part, and parameters that are replicated.

Every process differentiates only its own part of the loss. So the gradient of a sum of parts passes unchanged to the own part,
and the gradients of replicas are summed over the processes. Compare the conjugate functions f and g of Shoeybi et al.,
"Megatron-LM", arXiv:1909.08053.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from polyhal import functions as ops
from polyhal.creation import empty
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.ops import FUNCTIONS
from polyhal.parallel.group import Group
from polyhal.tape.function import Rule, attach, opaque
from polyhal.tape.modes import no_grad
from polyhal.tape.rules import zeros
from polyhal.tensor import Tensor


def sum_of_parts(x: Tensor, group: Group) -> Tensor:
    """Return the sum over all processes of their tensors (...); its gradient is that of this process's tensor.

    `group` has one device of each process. Raises ProcessGroupError if a process has exited.
    """
    with no_grad():
        (total,) = group.all_reduce([x.detach()])
    if x.requires_grad and dispatch.thread.grad_enabled:
        rule: Rule = lambda node, grads, needs: (grads[0],)  # noqa: E731
        attach(opaque("sum_of_parts", 1), (x,), (total,), rule)
    return total


def shared_copies(xs: Sequence[Tensor], group: Group) -> list[Tensor]:
    """Return this process's copies (...) of replicated tensors of one dtype.

    Their gradients are summed over all processes in one collective, when all are computed; `group` as for `sum_of_parts`.
    """

    def gradients(node: Any, grads: list[Tensor | None], needs: tuple[bool, ...]) -> tuple[Tensor, ...]:
        (total,) = group.all_reduce([joined_gradients(grads, xs, xs[0].device)])
        return new_copies(list(divided_like(total, xs)))

    copies = [x.detach() for x in xs]
    if dispatch.thread.grad_enabled and any(x.requires_grad for x in xs):
        attach(opaque("shared_copies", len(xs)), tuple(xs), tuple(copies), gradients, fresh=True)
    return copies


def joined(xs: Sequence[Tensor], like: Tensor, device: Device) -> Tensor:
    """Concatenate the elements of tensors on one device; without tensors, return an empty vector of the dtype of `like`."""
    flat = [ops.reshape(ops.contiguous(x), (-1,)) for x in xs]
    return ops.concat(flat, 0) if len(flat) > 1 else flat[0] if flat else empty((0,), like.dtype, device)


def joined_gradients(grads: Sequence[Tensor | None], like: Sequence[Tensor], device: Device) -> Tensor:
    """Concatenate the elements of the gradients of tensors; zeros for None."""
    filled = [zeros(x.ref.spec, device) if g is None else g for x, g in zip(like, grads, strict=True)]
    return joined(filled, like[0], device)


def new_copies(xs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copy tensors to separate memory, as gradients of leaves require."""
    copied: tuple[Tensor, ...] = FUNCTIONS["copies"](xs) if xs else ()
    return copied


def divided_like(vector: Tensor, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield consecutive views of a vector with the shapes of tensors."""
    start = 0
    for x in tensors:
        yield ops.reshape(ops.narrow(vector, 0, start, x.size), x.shape)
        start += x.size


def start_alike(tensors: Iterable[Tensor], processes: ProcessGroup) -> None:
    """Copy the elements of rank 0 to the tensors of all processes."""
    with no_grad():
        for x in tensors:
            host = x.detach().numpy().reshape(-1).copy()
            processes.broadcast(host, 0)
            if processes.rank:
                x.copy_(Tensor(host, device=x.device).reshape(x.shape))
