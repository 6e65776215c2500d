"""What processes that run the same program share: losses of which each has a part, and parameters of which each has a copy.

Every process differentiates its own part of the loss. So the sum of the parts has the part's own gradient, and the gradients of
the copies are summed. Compare the conjugate functions f and g of Shoeybi et al., "Megatron-LM", arXiv:1909.08053.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyhal import functions as ops
from polyhal.autograd import no_grad
from polyhal.autograd.function import Rule, attach, opaque
from polyhal.hal import dispatch
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.parallel.group import Group
from polyhal.tensor import Tensor


def sum_of_parts(x: Tensor, group: Group) -> Tensor:
    """The sum over all processes of a tensor (...), of which each has a part; its gradient is that of this process's part.

    `group` has one device of each process. Raises ProcessGroupError if a process is gone.
    """
    with no_grad():
        (total,) = group.all_reduce([x.detach()])
    return _with_gradient("sum_of_parts", x, total, lambda g: g)


def shared_copy(x: Tensor, group: Group) -> Tensor:
    """This process's copy (...) of what all have; its gradient is the sum over all processes. `group` as for `sum_of_parts`."""
    return _with_gradient("shared_copy", x, x.detach(), lambda g: group.all_reduce([g])[0])


def _with_gradient(name: str, x: Tensor, out: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
    if x.requires_grad and dispatch.thread.grad_enabled:
        rule: Rule = lambda node, grads, needs: (gradient(ops.contiguous(grads[0])),)  # noqa: E731
        attach(opaque(name, 1), (x,), (out,), rule)
    return out


def start_alike(tensors: Iterable[Tensor], processes: ProcessGroup) -> None:
    """Copy the elements of rank 0 to the tensors of all processes."""
    with no_grad():
        for x in tensors:
            host = x.detach().numpy().reshape(-1).copy()
            processes.broadcast(host, 0)
            if processes.rank:
                x.copy_(Tensor(host, device=x.device).reshape(x.shape))
