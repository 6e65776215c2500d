"""Training in several processes, on one or many machines: joining a job, collectives on tensors, and launching jobs.

A process group connects the processes. Its engine is MPI, Ray, or one from another package.
"""

from polyhal.distributed.compression import CompressedSum
from polyhal.distributed.environment import started_by_mpi
from polyhal.distributed.job import (
    barrier,
    init,
    is_initialized,
    launch_command,
    leave,
    local_rank,
    note_resume,
    process_group,
    rank,
    restarts,
    size,
)
from polyhal.distributed.loading import ShardedLoader
from polyhal.distributed.sharded_update import ShardedUpdate
from polyhal.distributed.solo import SoloGroup
from polyhal.distributed.tensors import all_gather, all_reduce, broadcast, gather, reduce_scatter, scatter
from polyhal.hal.collectives.process_group import ProcessGroup, ProcessGroupError, ProcessGroupSpec

__all__ = [
    "CompressedSum",
    "ProcessGroup",
    "ProcessGroupError",
    "ProcessGroupSpec",
    "ShardedLoader",
    "ShardedUpdate",
    "SoloGroup",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "gather",
    "init",
    "is_initialized",
    "launch_command",
    "leave",
    "local_rank",
    "note_resume",
    "process_group",
    "rank",
    "reduce_scatter",
    "restarts",
    "scatter",
    "size",
    "started_by_mpi",
]
