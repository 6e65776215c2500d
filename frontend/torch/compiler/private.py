"""What the compiler uses of PyTorch beyond its public interface: one function for each name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions


def bind_symbol(size: torch.SymInt, value: int, values: dict[Any, Any]) -> None:
    """Note the value of a symbolic size among those of symbols, if it is one, and not computed from others."""
    import sympy

    expression = size.node.expr
    if expression.is_symbol:
        values[expression] = sympy.Integer(value)


def substituted(size: torch.SymInt, values: dict[Any, Any]) -> int:
    """A symbolic size as a number, by the values of its symbols. Raises KeyError for one without a value."""
    expression = size.node.expr.xreplace(values)
    if expression.free_symbols:
        raise KeyError(f"{expression}")
    return int(expression)


def forward_results() -> int | None:
    """How many results of the forward graph that is compiled now are for the program; the others are for the backward graph.

    None for a graph without a backward one.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return None
    count: int = metadata.num_mutated_inp_runtime_indices + metadata.num_outputs + metadata.num_intermediate_bases
    return count


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's rules that express all other ops by the core ones."""
    return dict(core_aten_decompositions())


def dynamo_backend(**compilers: Any) -> Callable[..., Any]:
    """A backend of Dynamo, whose compilers get graphs of ATen ops without mutation or autograd."""
    from torch._dynamo.backends.common import aot_autograd

    backend: Callable[..., Any] = aot_autograd(**compilers)
    return backend


def boxed(function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """A compiled graph that is called with one list of arguments, which it may empty."""

    def run(arguments: list[Any]) -> list[Any]:
        return function(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def min_cut(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """The rule that divides a graph with its gradients into a forward and a backward one: cheap values are computed again.

    Results of random ops within checkpoints are kept: PyTorch repeats such an op with the state of a generator, which it
    reads and sets on its own devices only.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.utils.checkpoint import CheckpointPolicy

    for node in joint.graph.nodes:
        if "recompute" in node.meta and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            for kept in (node, *(user for user in node.users if user.target is operator.getitem)):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, *args, **kwargs)


def split_graph(graph: torch.fx.GraphModule, is_supported: Callable[[torch.fx.Node], bool]) -> torch.fx.GraphModule:
    """The graph with as few submodules as possible, named `fused_...`, in place of all nodes that are supported."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    support = create_op_support(lambda modules, node: is_supported(node))
    return CapabilityBasedPartitioner(graph, support, allows_single_node_partition=True).partition_and_fuse()


def traced(
    function: Callable[..., Any], decompositions: dict[Any, Any], layouts: Iterable[tuple[Any, Any, torch.dtype]]
) -> torch.fx.GraphModule | None:
    """A function of tensors of these shapes, strides and dtypes as a graph; None if it returns NotImplemented."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    declined = False

    def watched(*args: Any) -> Any:
        nonlocal declined
        out = function(*args)
        declined = out is NotImplemented
        return None if declined else out

    with FakeTensorMode():
        fakes = [torch.empty_strided(shape, strides, dtype=dtype) for shape, strides, dtype in layouts]
        try:
            made: torch.fx.GraphModule = make_fx(watched, decomposition_table=decompositions)(*fakes)
        except NotImplementedError:
            return None
    return None if declined else made
