"""Several devices in one program: groups with collectives, and models that are trained on all of them."""

from polyhal.hal.collectives.communicator import BUCKET_BYTES
from polyhal.nn.replica import current_replica
from polyhal.parallel.balance import Balancer
from polyhal.parallel.data_parallel import DataParallel
from polyhal.parallel.group import Group
from polyhal.parallel.lockstep import ReplicaError
from polyhal.parallel.parallel_layers import (
    ColumnParallelLinear,
    ParallelEmbedding,
    RowParallelLinear,
    joined,
    spread,
    vocab_parallel_cross_entropy,
)
from polyhal.parallel.partitioning import ModelPartition, partition
from polyhal.parallel.pipeline import Pipeline
from polyhal.parallel.sharded_module import shares, sub_group
from polyhal.parallel.shards import Shards
from polyhal.parallel.stage_executor import PipelineError
from polyhal.parallel.tensor_parallel import divide_vocabulary, tensor_parallel

__all__ = [
    "BUCKET_BYTES",
    "Balancer",
    "ColumnParallelLinear",
    "DataParallel",
    "Group",
    "ModelPartition",
    "ParallelEmbedding",
    "Pipeline",
    "PipelineError",
    "ReplicaError",
    "RowParallelLinear",
    "Shards",
    "current_replica",
    "divide_vocabulary",
    "joined",
    "partition",
    "shares",
    "spread",
    "sub_group",
    "tensor_parallel",
    "vocab_parallel_cross_entropy",
]
