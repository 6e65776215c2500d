"""Merge sort without local memory: short blocks sorted in registers, then merged in pairs between two workspaces.

The passes double-buffer: each reads the workspace that the previous one wrote. Top-k merges only the first `keep` elements of a
pair. Fastest on CPUs, correct on any device.
"""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl_c.lowering.sort.problem import FIRST_WORKSPACE, INDICES, VALUES, SortProblem, X
from polyhal.hal.protocol import Launch

_BLOCK = 16
"""Elements of a block, which a sorting network sorts in registers.

The work per element grows with log(n)^2 in a network of n elements, and with log(n) in merges.
"""
_CHUNK = 1024
"""Maximum consecutive results that a work-item merges."""
_RESULTS: Arguments = {"x": Tensor(X), "values": Tensor(VALUES), "indices": Tensor(INDICES)}


def build(problem: SortProblem) -> Launch:
    """Build the launches: blocks, then one merge per doubling of the sorted runs. Raises KernelBuildError."""
    blocks = ceil_div(problem.length, _BLOCK)
    if blocks == 1:
        return _sort_blocks(problem, 1, last=True)
    launches: list[Launch] = [_sort_blocks(problem, blocks, last=False)]
    run, source, target = _BLOCK, Workspace(FIRST_WORKSPACE), Workspace(FIRST_WORKSPACE + 1)
    while run < problem.length:
        launches.append(_merge(problem, run, source, target, last=2 * run >= problem.length))
        run, source, target = 2 * run, target, source
    itemsize = 16 if problem.dtype.itemsize == 8 else 8
    nbytes = problem.rows * problem.length * itemsize
    return LaunchSequence(launches, (nbytes, nbytes))


def _sort_blocks(problem: SortProblem, blocks: int, last: bool) -> Launch:
    memory: Arguments = _RESULTS if last else {"x": Tensor(X), "items": Workspace(FIRST_WORKSPACE)}
    return problem.runtime.launch(
        "sort/cpu_blocks",
        {**problem.definitions, "SIZE": _BLOCK, "LAST": last},
        {**memory, "blocks": blocks, **problem.geometry(problem.length, problem.keep)},
        (problem.rows * blocks,),
        (1,),
    )


def _merge(problem: SortProblem, run: int, source: Workspace, target: Workspace, last: bool) -> Launch:
    pairs = ceil_div(problem.length, 2 * run)
    chunks = ceil_div(min(2 * run, problem.keep), _CHUNK)
    memory: Arguments = _RESULTS if last else {"merged": target}
    return problem.runtime.launch(
        "sort/cpu_merge",
        {**problem.definitions, "CHUNK": _CHUNK, "LAST": last},
        {
            "items": source,
            **memory,
            "run": run,
            "pairs": pairs,
            "chunks": chunks,
            **problem.geometry(problem.length, problem.keep),
        },
        (problem.rows * pairs * chunks,),
        (1,),
    )
