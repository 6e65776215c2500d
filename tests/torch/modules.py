"""Replay PyTorch's database of layers on `torch.device("polyhal")`: `python -m tests.torch.modules --device numpy --only Conv`.

Outputs, state after the call and gradients are compared with the CPU's. The exit status is 1 if less than 98 % agree.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.pytorch.compare import difference
from tests.pytorch.gradients import torch_gradients
from tests.pytorch.modules import module_database, samples
from tests.pytorch.outcome import describe
from tests.torch.placement import NAME, Case, observed, on_cpu
from tests.torch.replay import run


def replay_database(only: str, limit: int | None) -> Iterator[Case]:
    """Replay the layers whose name contains `only`, in training and evaluation."""
    for entry in module_database():
        if only in entry.module_cls.__name__:
            yield from replay(entry, limit=limit)


def replay(entry: Any, *, limit: int | None = None) -> Iterator[Case]:
    """Replay the samples of a layer in float32, at most `limit` evenly chosen ones of each mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample, training in samples(entry, torch.float32, limit):
            yield _replay_sample(entry.module_cls, sample, training)


def _to_device(tree: Any, moved: dict[int, torch.Tensor]) -> Any:
    """Move all tensors of a nest to the device, as leaves; one that occurs twice stays one."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in moved:
            moved[id(x)] = x.detach().to(NAME).requires_grad_(x.requires_grad)
        return moved[id(x)]

    return pytree.tree_map(move, tree)


def _replay_sample(kind: Any, sample: Any, training: bool) -> Case:
    make, call = sample.constructor_input, sample.forward_input
    text = f"({describe(make.args, make.kwargs)})({describe(call.args, call.kwargs)}) training={training}"
    try:
        theirs = kind(*make.args, **make.kwargs).train(training)
        if isinstance(theirs, torch.nn.modules.lazy.LazyModuleMixin):
            theirs(*call.args, **call.kwargs)  # a lazy layer creates its parameters
        mine = copy.deepcopy(theirs)
        expected = theirs(*call.args, **call.kwargs)
    except Exception:
        return Case(kind.__name__, text, None)
    drawn = training and kind.__name__ == "RReLU"
    return Case(
        kind.__name__, text, observed(lambda: _difference(mine, theirs, [call.args, call.kwargs], expected, drawn))
    )


def _difference(mine: Any, theirs: Any, inputs: Any, expected: Any, drawn: bool) -> str:
    """Call the layer on the device, and describe differences from the CPU's, which was called already."""
    mine.to(NAME)
    values, keywords = my_inputs = _to_device(inputs, {})
    out = mine(*values, **keywords)
    found, results = pytree.tree_leaves(on_cpu(out)), pytree.tree_leaves(expected)
    if drawn:
        return "" if [t.shape for t in found] == [t.shape for t in results] else "shapes differ"
    problem = difference(found, results, tolerance=2.0)
    if not problem:
        states = [list(m.state_dict().values()) for m in (mine, theirs)]
        problem = difference(on_cpu(states[0]), states[1], tolerance=2.0)
        problem = problem and f"state after the call: {problem}"
    if not problem:
        ours = _gradients(out, [list(mine.parameters()), my_inputs])
        problem = difference(on_cpu(ours), _gradients(expected, [list(theirs.parameters()), inputs]), tolerance=4.0)
        problem = problem and f"gradient: {problem}"
    return problem


def _gradients(results: Any, inputs: Any) -> list[torch.Tensor]:
    return torch_gradients(pytree.tree_leaves(results), pytree.tree_leaves(inputs))


if __name__ == "__main__":
    sys.exit(run("modules", replay_database))
