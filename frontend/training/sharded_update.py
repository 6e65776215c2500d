"""The update of the parameters by several ranks: each keeps the optimizer's state for its part of them, and updates that.

A step computes gradients on every rank (one captured step), sums them so that each rank gets its part, updates that part
(another captured step), and collects the parts of all ranks. What a rank sends is as much as for a sum of all gradients; memory
and time of the update are divided among the ranks. Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054, stage 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal import functions as ops
from polyhal.autograd import no_grad
from polyhal.creation import zeros_like
from polyhal.hal.collectives.collective import divided
from polyhal.optim import Optimizer
from polyhal.steps.jit import jit
from polyhal.tensor import Tensor
from polyhal.training.ranks import Ranks


class ShardedUpdate:
    """The parameters of `groups`, each group laid out as one float32 vector of which every rank has an even part.

    `make_optimizer` gets this rank's parts, one per group. The optimizer must treat elements independently of each other, as
    SGD, Adam and AdamW do. `clip` limits the norm of all gradients together; 0 does not.
    """

    def __init__(
        self,
        ranks: Ranks,
        groups: Sequence[Sequence[Tensor]],
        make_optimizer: Callable[[list[Tensor]], Optimizer],
        clip: float,
        *,
        eager: bool = False,
    ) -> None:
        self.ranks = ranks
        self.groups = groups
        self.clip = clip
        self.counts = [divided(sum(p.size for p in group), ranks.size) for group in groups]
        """Elements of each rank's part, per group."""
        self.parts = [self._part(group, counts) for group, counts in zip(groups, self.counts, strict=True)]
        """This rank's parts of the parameters."""
        self.optimizer = make_optimizer(self.parts)
        self._update = self._learn if eager else jit(self._learn, warm_up=False)
        self._store = self._spread if eager else jit(self._spread, warm_up=False)

    def _part(self, group: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
        part = self._own(_joined([p.detach() for p in group]).numpy(), counts)
        return Tensor(part, device=group[0].device, requires_grad=True)

    def _own(self, vector: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        start = sum(counts[: self.ranks.rank])
        return vector[start : start + counts[self.ranks.rank]].copy()

    def take_gradients(self) -> list[Tensor]:
        """Return the gradients of each group as a vector and remove them; part of the captured step that computes them."""
        vectors = [_joined([zeros_like(p) if p.grad is None else p.grad.detach() for p in g]) for g in self.groups]
        for group in self.groups:
            for p in group:
                p.grad = None
        return vectors

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Sum gradients of `take_gradients` over the ranks, update the parameters and give all ranks the new ones."""
        reading = [g.numpy_async() for g in gradients]
        sums = []
        for future, counts in zip(reading, self.counts, strict=True):
            own = np.empty(counts[self.ranks.rank], np.float32)
            self.ranks.group.reduce_scatter(np.ascontiguousarray(future.result()), own, counts)
            sums.append(own)
        own_sums = [Tensor(own, device=part.device) for own, part in zip(sums, self.parts, strict=True)]
        self._update(own_sums, self._factor(sums))
        self.share()

    def _factor(self, sums: Sequence[np.ndarray]) -> float:
        """What the gradients are multiplied by so that their norm is at most `clip`."""
        if not self.clip:
            return 1.0
        squares = math.fsum(float(np.dot(own.astype(np.float64), own.astype(np.float64))) for own in sums)
        return min(self.clip / (math.sqrt(self.ranks.total(squares)) + 1e-6), 1.0)

    def _learn(self, gradients: list[Tensor], factor: float) -> None:
        """The work of an update on the device."""
        with no_grad():
            for part, gradient in zip(self.parts, gradients, strict=True):
                part.grad = gradient * factor
        self.optimizer.step()
        self.optimizer.zero_grad()

    def share(self) -> None:
        """Give all ranks the parts of all."""
        vectors = []
        for part, counts in zip(self.parts, self.counts, strict=True):
            whole = np.empty(sum(counts), np.float32)
            self.ranks.group.all_gather(np.ascontiguousarray(part.detach().numpy()), whole, counts)
            vectors.append(Tensor(whole, device=part.device))
        self._store(vectors)

    def reload(self) -> None:
        """Take this rank's parts anew from parameters that were changed."""
        with no_grad():
            for part, group, counts in zip(self.parts, self.groups, self.counts, strict=True):
                values = self._own(_joined([p.detach() for p in group]).numpy(), counts)
                part.copy_(Tensor(values, device=part.device))

    def _spread(self, vectors: list[Tensor]) -> None:
        """Copy the groups' vectors to the parameters."""
        with no_grad():
            for vector, group in zip(vectors, self.groups, strict=True):
                start = 0
                for p in group:
                    p.copy_(vector[start : start + p.size].reshape(p.shape).to(p.device))
                    start += p.size

    # --- state of any number of ranks -----------------------------------------------------------------------------------

    def state(self) -> list[dict[str, Any]]:
        """Return this rank's part of the optimizer's state, per group: where it begins, and its vectors and numbers."""
        saved = self.optimizer.state_dict()["state"]
        return [
            {"start": sum(counts[: self.ranks.rank]), "length": counts[self.ranks.rank], "state": saved.get(i, {})}
            for i, counts in enumerate(self.counts)
        ]

    def load_state(self, groups: Sequence[dict[str, Any]], settings: Sequence[dict[str, Any]]) -> None:
        """Continue with whole vectors and numbers of each group, and settings of the optimizer's groups."""
        state: dict[int, dict[str, Any]] = {}
        for i, (group, counts) in enumerate(zip(groups, self.counts, strict=True)):
            own = {k: self._own(v, counts) if isinstance(v, np.ndarray) else v for k, v in group.items()}
            if own:
                state[i] = own
        numbered = [{**s, "params": [i]} for i, s in enumerate(settings)]
        self.optimizer.load_state_dict({"state": state, "param_groups": numbered})
        self.reload()


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of any shapes as one float32 vector, on the device of the first."""
    return ops.concat([ops.reshape(t, (-1,)).float().to(tensors[0].device) for t in tensors], 0)
