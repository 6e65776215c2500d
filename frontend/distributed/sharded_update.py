"""Parameter updates that are sharded over ranks: each rank holds the optimizer state of one part, and updates that part.

Gradients are reduce-scattered, the parts are updated, and the new parameters are all-gathered. All of that is part of the step
that computes the gradients: when captured, reductions of the last layers' gradients overlap with the backward pass of earlier
layers. A rank sends as many bytes as for an all-reduce of the gradients; memory and time of the update are divided among the
ranks. Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054, stage 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyhal import functions as ops
from polyhal.creation import zeros, zeros_like
from polyhal.distributed.compression import rounded_with_feedback
from polyhal.hal.collectives.collective import divided
from polyhal.hal.collectives.communicator import BUCKET_BYTES
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.dtypes import DType
from polyhal.nn.utils import clip_grads_with_norm_, get_total_norm
from polyhal.optim import Optimizer
from polyhal.parallel.group import Group
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class ShardedBucket(NamedTuple):
    """Parameters that are reduced and gathered by one collective, as a float32 vector with an even part per rank."""

    parameters: Sequence[Tensor]
    counts: tuple[int, ...]
    """Number of elements of each rank's part."""
    part: Tensor
    """Part of this rank."""
    error: Tensor | None
    """Rounding errors of this rank's gradients, if they are exchanged in half precision."""


class ShardedUpdate:
    """The parameters of `groups`, one list per group of the optimizer, in buckets of up to `bucket_bytes` bytes of float32.

    All ranks of the process group `group` construct it with parameters of the same values. `parameters` are the same
    parameters in the order in which the model uses them. `make_optimizer` receives this rank's parts, a list per group. The
    optimizer must treat elements independently of each other, as SGD, Adam and AdamW do. `clip` limits the norm of all
    gradients; 0 disables clipping. With `compress`, bfloat16 or float16, every rank rounds its gradients, and adds the rounding
    errors to the next step's gradients (Seide et al., Interspeech 2014). Sums are accumulated in float32 and rounded once.
    """

    def __init__(
        self,
        group: ProcessGroup,
        parameters: Iterable[Tensor],
        groups: Sequence[Sequence[Tensor]],
        make_optimizer: Callable[[list[list[Tensor]]], Optimizer],
        clip: float,
        *,
        compress: DType | None = None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.group = group
        self.clip = clip
        self.compress = compress
        self.device = groups[0][0].device
        self._members = Group([self.device], group)
        self.groups = [[self._bucket(run) for run in _runs(group, bucket_bytes)] for group in groups]
        self.buckets = [bucket for group in self.groups for bucket in group]
        position = {id(p): i for i, p in enumerate(parameters)}
        self._backward_order = sorted(self.buckets, key=lambda b: -min(position[id(p)] for p in b.parameters))
        """Buckets in the order in which their gradients become complete: the last layers first."""
        self.optimizer = make_optimizer([[bucket.part for bucket in group] for group in self.groups])

    def _bucket(self, parameters: Sequence[Tensor]) -> ShardedBucket:
        counts = divided(sum(p.size for p in parameters), self.group.size)
        part = self._own(self._joined(parameters).numpy(), counts)
        error = None if self.compress is None else zeros((sum(counts),), device=self.device)
        return ShardedBucket(parameters, counts, Tensor(part, device=self.device, requires_grad=True), error)

    def _own(self, vector: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        start = sum(counts[: self.group.rank])
        return vector[start : start + counts[self.group.rank]].copy()

    def _joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Concatenate tensors of any shapes to one float32 vector."""
        return ops.concat([ops.reshape(t.detach(), (-1,)).float().to(self.device) for t in tensors], 0)

    def step(self) -> None:
        """Reduce-scatter the gradients, update the parameters and all-gather the new ones. Gradients are removed."""
        with no_grad():
            for bucket in self._backward_order:
                bucket.part.grad = self._reduced(bucket)
            if self.clip:
                self._limit([bucket.part.grad for bucket in self.buckets if bucket.part.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._share()

    def _reduced(self, bucket: ShardedBucket) -> Tensor:
        """Return this rank's part of the sum of the gradients."""
        gradients = self._joined([zeros_like(p) if p.grad is None else p.grad for p in bucket.parameters])
        for p in bucket.parameters:
            p.grad = None
        if bucket.error is not None:
            gradients, error = rounded_with_feedback(gradients, self.compress, bucket.error)
            bucket.error.copy_(error)
        return self._members.reduce_scatter([gradients], sizes=bucket.counts)[0].float()

    def _limit(self, gradients: list[Tensor]) -> None:
        """Scale the ranks' parts of the gradients so that the norm of all gradients is at most `clip`."""
        own = get_total_norm(gradients)
        (squares,) = self._members.all_reduce([own * own])
        clip_grads_with_norm_([bucket.part for bucket in self.buckets], self.clip, ops.sqrt(squares))

    def _share(self) -> None:
        """All-gather the parts of the parameters."""
        with no_grad():
            for bucket in self.buckets:
                (whole,) = self._members.all_gather([bucket.part.detach()], sizes=bucket.counts)
                start = 0
                for p in bucket.parameters:
                    p.copy_(whole[start : start + p.size].reshape(p.shape).to(p.device))
                    start += p.size

    def reload(self) -> None:
        """Copy this rank's parts from parameters that were changed."""
        with no_grad():
            for bucket in self.buckets:
                values = self._own(self._joined(bucket.parameters).numpy(), bucket.counts)
                bucket.part.copy_(Tensor(values, device=self.device))

    @property
    def errors(self) -> list[Tensor]:
        """Rounding errors of this rank's gradients, a vector (n,) per bucket; none without `compress`."""
        return [bucket.error for bucket in self.buckets if bucket.error is not None]

    def load_errors(self, vectors: Sequence[np.ndarray]) -> None:
        """Restore the `errors` of the same rank of a job of the same size."""
        with no_grad():
            for error, vector in zip(self.errors, vectors, strict=True):
                error.copy_(Tensor(vector, device=self.device))

    # --- state of any number of ranks -----------------------------------------------------------------------------------

    def state(self) -> list[list[dict[str, Any]]]:
        """Return the optimizer's state for this rank's parts, vectors and numbers, per group and bucket."""
        saved = self.optimizer.state_dict()["state"]
        numbers = itertools.count()
        return [[saved.get(next(numbers), {}) for _ in group] for group in self.groups]

    def load_state(self, groups: Sequence[dict[str, Any]], settings: Sequence[dict[str, Any]]) -> None:
        """Restore whole vectors and numbers of each group, and settings of the optimizer's groups."""
        state: dict[int, dict[str, Any]] = {}
        numbered = []
        count = 0
        for group, buckets, own_settings in zip(groups, self.groups, settings, strict=True):
            start = 0
            for i, bucket in enumerate(buckets, count):
                end = start + sum(bucket.counts)
                if group:
                    state[i] = {
                        k: self._own(v[start:end], bucket.counts) if isinstance(v, np.ndarray) else v
                        for k, v in group.items()
                    }
                start = end
            numbered.append({**own_settings, "params": [*range(count, count + len(buckets))]})
            count += len(buckets)
        self.optimizer.load_state_dict({"state": state, "param_groups": numbered})
        self.reload()


def _runs(tensors: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield runs of consecutive tensors of up to `most` bytes of float32."""
    run: list[Tensor] = []
    for x in tensors:
        if run and 4 * (sum(other.size for other in run) + x.size) > most:
            yield run
            run = []
        run.append(x)
    if run:
        yield run
