"""Dynamo backend that `torch.compile(model, backend="polyhal")` calls for each graph of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from polyhal.hal.device import Device
from polyhal.torch.compiler import assignments, branches, constant_numbers, once, private, saved_values
from polyhal.torch.compiler.graph import CompiledGraph, release_programs
from polyhal.torch.compiler.interpreter import decompositions
from polyhal.torch.compiler.remade import remade_nodes
from polyhal.torch.device import current

MODES = ("default", "reduce-overhead")
"""Supported modes, with equal effect: a program is always replayed with planned memory, as "reduce-overhead" requests."""
OPTIONS = ("device", "split")


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a Dynamo graph and its gradient by AOTAutograd, with PyTorch's min-cut partitioner.

    `options["device"]` is the Polyhal device that computes on CPU tensors, by default the device of `torch.device("polyhal")`.
    With `options["split"]` False, an op that only PyTorch runs is an error. Raises ValueError for other options and for modes
    other than "default" and "reduce-overhead".
    """
    if mode not in (None, *MODES):
        raise ValueError(f"mode {mode!r}; polyhal has {' and '.join(MODES)}. `polyhal tune` finds faster kernels")
    assignments.install()  # the program may have imported SciPy since
    settings = dict(options or {})
    unknown = sorted(settings.keys() - set(OPTIONS))
    if unknown:
        raise ValueError(f"options {', '.join(unknown)}; polyhal has {' and '.join(OPTIONS)}")
    device = None if settings.get("device") is None else Device(settings["device"])
    split = bool(settings.get("split", True))

    def forward(made: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        """Compile a forward graph. Results that are saved for the backward graph remain on the device."""
        count = private.forward_results()
        results = made.graph.output_node().args[0]
        total = len(results) if isinstance(results, (list, tuple)) else 1
        return private.boxed(CompiledGraph(made, range(total if count is None else count, total), device, split))

    def whole(made: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        """Compile a backward graph, or a graph without gradients."""
        return private.boxed(CompiledGraph(made, (), device, split))

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Partition a joint graph. Constants and masks are made in both graphs, other values are saved in one tensor."""
        made, later = private.min_cut(joint, remade_nodes(joint.graph), *args, **kwargs)
        saved_values.carry(made, later, kwargs["num_fwd_outputs"], device or current())
        return made, later

    return private.compiled_below_autograd(
        graph,
        example_inputs,
        fw_compiler=forward,
        bw_compiler=whole,
        inference_compiler=whole,
        decompositions=decompositions(),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


once.install()
branches.install()
constant_numbers.install()
assignments.install()
backend.reset = release_programs  # type: ignore[attr-defined]  # `torch.compiler.reset()` calls it
