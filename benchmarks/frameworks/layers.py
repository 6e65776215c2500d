"""Calls of layer workloads in Polyhal, eager and captured, and in PyTorch, eager, compiled and as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyhal
from benchmarks.frameworks.cuda_graph import as_cuda_graph
from benchmarks.layer_workloads import LayerWorkload
from benchmarks.op_workloads import normal_numbers
from polyhal import Device

Call = Callable[[], Any]
"""Computes the result, or its gradients, and waits for the device."""


def polyhal_calls(workload: LayerWorkload, device: Device, backward: bool) -> dict[str, Call]:
    """Return the workload on a device, captured and eager."""
    layer = workload.layer(polyhal).to(device) if workload.layer else None
    dtype = getattr(polyhal, workload.dtype)
    inputs = [polyhal.tensor(a, device=device, dtype=dtype if a.dtype.kind == "f" else None) for a in workload.arrays()]
    sources = _sources(workload, layer, inputs) if backward else []
    if not backward and hasattr(layer, "parameters"):
        layer.requires_grad_(False)
    out_grad = _out_grad(workload.forward(polyhal, layer, *inputs).shape)
    g = polyhal.tensor(out_grad, device=device, dtype=dtype)

    def run() -> Any:
        out = workload.forward(polyhal, layer, *inputs)
        return (out, polyhal.grad(out, sources, g)) if backward else out

    def waiting(function: Call) -> Call:
        def call() -> Any:
            result = function()
            device.synchronize()
            return result

        return call

    return {"captured": waiting(polyhal.jit(run)), "eager": waiting(run)}


def torch_calls(workload: LayerWorkload, place: str, backward: bool, compiled: bool) -> dict[str, Call]:
    """Return the workload in PyTorch on its device `place`; with `compiled`, also by torch.compile."""
    import torch

    if place == "cuda":  # as accurate as the competitor
        torch.backends.cudnn.allow_tf32 = False
    layer = workload.layer(torch).to(place) if workload.layer else None
    dtype = getattr(torch, workload.dtype)
    inputs = [torch.from_numpy(a).to(place, dtype if a.dtype.kind == "f" else None) for a in workload.arrays()]
    sources = _sources(workload, layer, inputs) if backward else []
    if not backward and hasattr(layer, "parameters"):
        layer.requires_grad_(False)
    g = torch.from_numpy(_out_grad(tuple(workload.forward(torch, layer, *inputs).shape))).to(place, dtype)

    def with_gradient(function: Call) -> Call:
        def call() -> Any:
            out = function()
            return (out, torch.autograd.grad(out, sources, g)) if backward else out

        return call

    def waiting(function: Call) -> Call:
        def call() -> Any:
            result = function()
            if place == "cuda":
                torch.cuda.synchronize()
            return result

        return call

    def forward() -> Any:
        return workload.forward(torch, layer, *inputs)

    calls = {"PyTorch": waiting(with_gradient(forward))}
    if compiled:
        faster: Call = torch.compile(forward)
        calls["torch.compile"] = waiting(with_gradient(faster))
    if place == "cuda":
        calls["CUDA graph"] = waiting(as_cuda_graph(with_gradient(forward)))
    return calls


def _sources(workload: LayerWorkload, layer: Any, inputs: list[Any]) -> list[Any]:
    """Return everything that has a gradient: the floating-point inputs and the parameters."""
    floats = [x.requires_grad_() for i, x in enumerate(inputs) if i not in workload.indices]
    return floats + (list(layer.parameters()) if hasattr(layer, "parameters") else [])


def _out_grad(shape: tuple[int, ...]) -> np.ndarray:
    return normal_numbers(np.random.default_rng(2), shape)
