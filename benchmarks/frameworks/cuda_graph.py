"""CUDA graphs of PyTorch, which replay the launches of a function without its Python code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def as_cuda_graph(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call that replays a recording of `function` and returns the same tensors each time."""
    import torch

    # As PyTorch's documentation requires: a few calls on a side stream first, so that lazily created state exists.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        result = function()

    def replay() -> Any:
        recorded.replay()
        return result

    # The graph does not own the tensors that it reads; keep the function that does alive.
    replay.function = function  # type: ignore[attr-defined]
    return replay
