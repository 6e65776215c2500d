"""Sorting without local memory: short blocks sorted in registers, then merged in pairs. Best on CPUs, and runs anywhere."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.sort.problem import FIRST_WORKSPACE, INDICES, VALUES, Sorting, X
from polyhal.hal.protocol import Launch

_BLOCK = 16
"""Elements that a network sorts. It is quadratic in the logarithm, where merging is linear; so few fit in registers."""
_CHUNK = 1024
"""Neighbouring elements that a work-item merges."""


def build(job: Sorting) -> Launch:
    """Raises KernelBuildError."""
    blocks = ceil_div(job.length, _BLOCK)
    if blocks == 1:
        return _sort_blocks(job, 1, last=True)
    launches: list[Launch] = [_sort_blocks(job, blocks, last=False)]
    run, source, target = _BLOCK, Workspace(FIRST_WORKSPACE), Workspace(FIRST_WORKSPACE + 1)
    while run < job.length:
        launches.append(_merge(job, run, source, target, last=2 * run >= job.length))
        run, source, target = 2 * run, target, source
    item = 16 if job.dtype.itemsize == 8 else 8
    size = job.rows * job.length * item
    return LaunchSequence(job.name, launches, (size, size))


def _sort_blocks(job: Sorting, blocks: int, last: bool) -> Launch:
    results: list[Parameter] = [Tensor(VALUES), Tensor(INDICES)] if last else [Workspace(FIRST_WORKSPACE)]
    after = [*job.strides(VALUES, INDICES), Constant(job.keep, "uint")] if last else []
    return job.runtime.launch(
        job.name, "sort/cpu_blocks", {**job.definitions, "SIZE": _BLOCK, "LAST": last},
        [Tensor(X), *results, *job.numbers(job.length), *job.strides(X), *after, Constant(blocks, "uint")],
        (job.rows * blocks,), (1,),
    )  # fmt: skip


def _merge(job: Sorting, run: int, source: Workspace, target: Workspace, last: bool) -> Launch:
    pairs = ceil_div(job.length, 2 * run)
    chunks = ceil_div(min(2 * run, job.keep), _CHUNK)
    results: list[Parameter] = [Tensor(X), Tensor(VALUES), Tensor(INDICES)] if last else [target]
    strides = job.strides(X, VALUES, INDICES) if last else []
    numbers = [Constant(v, "uint") for v in (run, job.keep, pairs, chunks)]
    return job.runtime.launch(
        job.name, "sort/cpu_merge", {**job.definitions, "CHUNK": _CHUNK, "LAST": last},
        [source, *results, *job.numbers(job.length), *strides, *numbers], (job.rows * pairs * chunks,), (1,),
    )  # fmt: skip
