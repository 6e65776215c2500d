"""Private interfaces of PyTorch that the compiler uses: one function for each name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd

_UNINITIALIZED = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_like.default,
)


def bind_symbol(size: torch.SymInt, value: int, values: dict[Any, Any]) -> None:
    """Store the value of a symbolic size in `values` if it is a plain symbol, not an expression."""
    import sympy

    expression = size.node.expr
    if expression.is_symbol:
        values[expression] = sympy.Integer(value)


def substituted(size: torch.SymInt, values: dict[Any, Any]) -> int:
    """Return the value of a symbolic size from the values of its symbols. Raises KeyError for a symbol without a value."""
    expression = size.node.expr.xreplace(values)
    if expression.free_symbols:
        raise KeyError(f"{expression}")
    return int(expression)


def forward_results() -> int | None:
    """Return how many results of the forward graph being compiled belong to the program; the others feed the backward graph.

    None if there is no backward graph.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return None
    count: int = metadata.num_mutated_inp_runtime_indices + metadata.num_outputs + metadata.num_intermediate_bases
    return count


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of all other ops to core ops; tracing decomposes composite ops without rules."""
    return dict(_core_aten_decompositions_post_autograd())


def compiled_below_autograd(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], bw_compiler: Callable[..., Any], **compilers: Any
) -> Callable[..., Any]:
    """Compile a Dynamo graph by compilers of functional graphs of ATen ops, and hide the result from Dynamo.

    PyTorch's class of such backends also imports Inductor's scheduler, for a log that this backend does not write.
    """
    from torch import _dynamo
    from torch._functorch.aot_autograd import aot_module_simplified

    hidden: Callable[[Callable[..., Any]], Callable[..., Any]] = _dynamo.disable

    def backward(*args: Any, **kwargs: Any) -> Any:
        return hidden(hidden(bw_compiler)(*args, **kwargs))

    return hidden(aot_module_simplified(graph, inputs, bw_compiler=backward, **compilers))


def before_logger_calls(is_repeatable: Callable[[Any], bool]) -> None:
    """Let Dynamo call methods of loggers that `is_repeatable` accepts while it traces, if all arguments are constants.

    Replaces an earlier function. No-op for versions of Dynamo that represent loggers in another way.
    """
    from torch._dynamo import variables

    logger: Any = getattr(variables.misc, "LoggingLoggerVariable", None)
    if logger is None:
        return
    breaking = getattr(logger.call_method, "breaking", logger.call_method)

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        method: Any = getattr(self.value, name, None)
        given = [*args, *kwargs.values()]
        if not is_repeatable(method) or not all(x.is_python_constant() for x in given):
            return breaking(self, tx, name, args, kwargs)
        method(*(x.as_python_constant() for x in args), **{k: x.as_python_constant() for k, x in kwargs.items()})
        return variables.ConstantVariable.create(None)

    call_method.breaking = breaking  # type: ignore[attr-defined]
    logger.call_method = call_method


def boxed(function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """Return a compiled graph that takes one list of arguments, which it may empty."""

    def run(arguments: list[Any]) -> list[Any]:
        return function(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def min_cut(joint: torch.fx.GraphModule, remade: Iterable[torch.fx.Node], *args: Any, **kwargs: Any) -> Any:
    """Partition a joint graph into forward and backward graphs; cheap values are rematerialized.

    The backward graph makes the values of the nodes `remade` again. Results of random ops within checkpoints are saved: to
    rematerialize one, PyTorch reads and sets the state of a generator, which it only does on its own devices.
    """
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.utils.checkpoint import CheckpointPolicy

    from polyhal.torch.compiler.common_nodes import merge_common_nodes

    for node in joint.graph.nodes:
        if "recompute" in node.meta and is_random(node):
            for kept in (node, *(user for user in node.users if user.target is operator.getitem)):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for node in remade:
        node.meta.setdefault("recompute", CheckpointPolicy.MUST_RECOMPUTE)
    joint.graph.eliminate_dead_code()
    merge_common_nodes(joint.graph)
    joint.recompile()
    with config.patch(cse=False):
        return min_cut_rematerialization_partition(joint, *args, **kwargs)


def is_random(node: torch.fx.Node) -> bool:
    """Return whether an op draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_uninitialized(node: torch.fx.Node) -> bool:
    """Return whether the result of an op has arbitrary values until it is written."""
    return node.target in _UNINITIALIZED


def writes_memory(node: torch.fx.Node) -> bool:
    """Return whether an op writes to an argument, or may do so because it is not an op of ATen's kind."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return isinstance(node.target, torch._ops.HigherOrderOperator)
    return bool(schema.is_mutable)


def has_unbacked_size(value: Any) -> bool:
    """Return whether a value is a number that only the run of the program determines."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and bool(free_unbacked_symbols(value))


def memory_identity(tensor: torch.Tensor) -> int:
    """Return a number that tensors share if they share memory; 0 for a tensor without memory."""
    try:
        identity: int = tensor.untyped_storage()._cdata
    except NotImplementedError:
        return 0
    return identity


def traced_empty(like: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return a traced tensor without elements on the device of another one."""
    with like.fake_mode:
        return torch.empty(0, dtype=dtype, device=like.device)


def split_graph(graph: torch.fx.GraphModule, is_supported: Callable[[torch.fx.Node], bool]) -> torch.fx.GraphModule:
    """Replace the supported nodes of a graph by as few submodules as possible, named `fused_...`."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    support = create_op_support(lambda modules, node: is_supported(node))
    return CapabilityBasedPartitioner(graph, support, allows_single_node_partition=True).partition_and_fuse()


def traced(
    function: Callable[..., Any], decompositions: dict[Any, Any], layouts: Iterable[tuple[Any, Any, torch.dtype]]
) -> torch.fx.GraphModule | None:
    """Trace a function of tensors of these shapes, strides and dtypes; None if it returns NotImplemented."""
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
