"""Training steps and evaluations of a language model, and the state for resuming."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from polyhal import Device, Tensor, jit, no_grad, random, zeros
from polyhal.data import TokenWindows
from polyhal.distributed import ShardedLoader, ShardedUpdate
from polyhal.hal.dtypes import as_dtype
from polyhal.models import GPT
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW, LambdaLR
from polyhal.parallel import Balancer, DataParallel, Shards
from polyhal.profiler import StepActivity
from polyhal.training.options import TrainOptions
from polyhal.training.ranks import Ranks
from polyhal.training.schedule import share_of_peak

_BETAS = (0.9, 0.99)
_EVALUATION_BATCHES = 20
_TIMED = range(5, 11)
"""Steps of a process in which devices are timed on request."""
Batch = Any
"""Inputs and targets: two tensors (B, T), or `Shards` of them."""


class Trainer:
    """Trains `model` on `training` tokens (T,) and evaluates it on `validation` tokens, which may be empty.

    A step does not wait for the device: losses are summed on it until `mean_loss` reads them. Steps and evaluations are
    captured, including the first ones, so that a resumed run computes the same numbers; `eager` runs op by op. Each of
    several `ranks` computes the gradients of its part of every batch and updates its part of the parameters; so does each of
    several `devices`.
    """

    def __init__(
        self,
        model: GPT,
        options: TrainOptions,
        training: np.ndarray,
        validation: np.ndarray,
        *,
        devices: Sequence[Device] = (),
        eager: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.model = model
        self.options = options
        self.device = model.lm_head.weight.device
        self.parallel: DataParallel | None = None
        """Model on several devices."""
        if len(devices) > 1:
            unlike = len({d.info.name for d in devices}) > 1
            self.parallel = DataParallel(model, devices, balance=unlike)
            self.device = devices[0]
        self.done = 0
        """Number of steps taken."""
        self.activity: StepActivity | None = None
        """Timer for some steps, which reports the activity of each device."""
        self._taken = 0
        """Steps of this process, in contrast to steps of a resumed run."""
        self.rebalanced = 0
        """Number of changes of the division of batches among the devices."""
        windows = TokenWindows(training, options.context)
        # Batches of one size need one set of kernels: the smaller last batch of an epoch is dropped unless it is the only one.
        whole = len(windows) >= options.batch_size
        self.loader = ShardedLoader(
            windows,
            options.batch_size,
            rank=self.ranks.rank,
            ranks=self.ranks.size,
            shuffle=True,
            drop_last=whole,
            seed=options.seed,
            device=None if self.parallel else self.device,
            parallel=self.parallel,
        )
        self._rows = options.batch_size if whole else len(windows)
        """Number of windows per batch on all ranks."""
        self._stream: Generator[Batch] | None = None
        self._validation = _spread(validation, options) if len(validation) else []
        matrices: list[Tensor] = [p for p in model.parameters() if p.ndim >= 2]
        others: list[Tensor] = [p for p in model.parameters() if p.ndim < 2]
        # Weight decay is not useful for scales and offsets of norms, nor for biases.
        self.groups = [(group, decay) for group, decay in ((matrices, options.weight_decay), (others, 0.0)) if group]
        """Groups of parameters with their weight decay."""
        self.sharded: ShardedUpdate | None = None
        """Sharded update of the parameters, with several ranks."""
        if self.ranks.size > 1:
            self.ranks.copy_weights(model)
            groups = [group for group, _ in self.groups]
            self.sharded = ShardedUpdate(
                self.ranks.group,
                model.parameters(),
                groups,
                self._optimizer,
                options.clip,
                compress=None if options.compress == "none" else as_dtype(options.compress),
            )
        self.optimizer = self.sharded.optimizer if self.sharded else self._optimizer([g for g, _ in self.groups])
        self.scheduler = LambdaLR(self.optimizer, self._share_of_peak)
        self._loss = zeros((), device=self.device)
        self._counted = 0
        self._total = zeros((), device=self.device)
        self._update = self._learn if eager else jit(self._learn, warm_up=False)
        self._measure = self._add_up if eager else jit(self._add_up, warm_up=False)

    def _optimizer(self, groups: list[list[Tensor]]) -> AdamW:
        decays = [decay for _, decay in self.groups]
        named = [{"params": g, "weight_decay": decay} for g, decay in zip(groups, decays, strict=True)]
        return AdamW(named, self.options.lr, _BETAS)

    def _share_of_peak(self, step: int) -> float:
        o = self.options
        return share_of_peak(step, warmup=o.warmup, steps=o.steps, schedule=o.schedule)

    @property
    def epoch(self) -> float:
        """Number of epochs trained."""
        return self.loader.epoch + self.loader.position / len(self.loader)

    @property
    def steps_per_epoch(self) -> float:
        """Number of optimizer steps per pass over the data."""
        return len(self.loader) / self.options.accumulate

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return float(self.scheduler.get_last_lr()[0])

    def step(self) -> None:
        """Take one optimizer step on the next batches."""
        self.model.train()
        if self._stream is None:
            self._stream = _endless(self.loader)
        batches = [next(self._stream) for _ in range(self.options.accumulate)]
        self._taken += 1
        # The first steps record, compile and fill caches.
        with self.activity if self.activity is not None and self._taken in _TIMED else nullcontext():
            self._take_step(batches)
        self._counted += self.options.accumulate
        self.done += 1
        if self.parallel is not None and self.parallel.balancer is not None:
            self._follow(self.parallel.balancer)

    def _take_step(self, batches: list[Batch]) -> None:
        alone = self.sharded is None
        share = None if alone else self.loader.weight(sum(x.shape[0] for x in _parts(batches[0][0])), self._rows)
        self._update(batches, share)

    def _learn(self, batches: list[Batch], share: float | None) -> None:
        """Run a step's device work, in place. `share` is this rank's fraction of the samples; None for all."""
        self._backward(batches, share)
        if self.sharded is not None:
            self.sharded.step()
        else:
            if self.options.clip:
                clip_grad_norm_(self.model.parameters(), self.options.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.scheduler.step()

    def _backward(self, batches: list[Batch], share: float | None) -> None:
        """Accumulate gradients and losses of batches."""
        for batch in batches:
            loss = self._mean_loss(batch)
            if share is not None:
                loss = loss * share
            (loss / len(batches) if len(batches) > 1 else loss).backward()
            with no_grad():
                self._loss.add_(loss.detach())

    @contextmanager
    def rehearsal(self) -> Iterator[Callable[[], None]]:
        """Provide a function that takes a step and waits for it, to measure the time of steps.

        After the block the state is restored. Raises RuntimeError after the first step.
        """
        if self.done:
            raise RuntimeError(f"a run of {self.done} steps cannot be rehearsed; rehearse before the first step")
        generator = random.default_generator.get_state()
        parts = [bucket.part for bucket in self.sharded.buckets] if self.sharded else []
        errors = self.sharded.errors if self.sharded else []
        parameters = [(p, p.detach().clone()) for p in (*self.model.parameters(), *parts)]
        inputs, targets = self.loader.read(self.loader.part(self.loader.order(0)[: self.options.batch_size]))

        def rehearse() -> None:
            self.model.train()
            self._take_step([self._upload(inputs, targets) for _ in range(self.options.accumulate)])
            for device in self.devices:
                device.synchronize()

        try:
            yield rehearse
        finally:
            with no_grad():
                for p, before in parameters:
                    p.copy_(before)
                for error in errors:
                    error.zero_()
            # In place, because the captured step refers to this state.
            for state in self.optimizer.state.values():
                state.update(step=0)
                state["exp_avg"].zero_()
                state["exp_avg_sq"].zero_()
            self.scheduler.load_state_dict({"last_epoch": 0})
            self._loss.zero_()
            random.default_generator.set_state(generator)

    def reschedule(self, options: TrainOptions) -> None:
        """Change options that do not affect the steps taken so far: the number of steps, and the actions between steps."""
        self.options = options
        self.scheduler.load_state_dict({"last_epoch": self.scheduler.last_epoch})

    def mean_loss(self) -> float:
        """Return the mean training loss since the last call, in nats per token. Waits for the device."""
        loss = self.ranks.total(float(self._loss.item()))
        mean = loss / self._counted if self._counted else math.nan
        self._loss.zero_()
        self._counted = 0
        return mean

    def evaluate(self) -> float | None:
        """Return the mean loss, in nats per token, on fixed windows of the validation text; None if that is empty."""
        if not self._validation:
            return None
        self.model.eval()
        self._total.zero_()
        count = 0
        with no_grad():
            for inputs, targets in self._validation[self.ranks.rank :: self.ranks.size]:
                self._measure(self._upload(inputs, targets))
                count += targets.size
        return self.ranks.total(float(self._total.item())) / self.ranks.total(count)

    def _add_up(self, batch: Batch) -> None:
        tokens = sum(x.size for x in _parts(batch[1]))
        self._total.add_(self._mean_loss(batch) * float(tokens))

    def close(self) -> None:
        """Stop prefetching batches."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _follow(self, balancer: Balancer) -> None:
        """Apply the balancer's latest decision. Prefetched batches, divided as before, are dropped and read again."""
        if len(balancer.decisions) > self.rebalanced:
            self.rebalanced = len(balancer.decisions)
            position = self.loader.state_dict()
            self.close()
            self.loader.load_state_dict(position)

    # --- devices ----------------------------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of this process."""
        return (self.device,) if self.parallel is None else self.parallel.devices

    def model_on_one_device(self) -> GPT:
        """Return the model on the first device, to generate text: a copy if several devices train it."""
        return self.model if self.parallel is None else copy.deepcopy(self.model).to(self.device)

    def _mean_loss(self, batch: Batch) -> Tensor:
        inputs, targets = batch
        if self.parallel is None:
            return self.model.loss(inputs, targets)
        loss: Tensor = self.parallel.map(GPT.loss, inputs, targets)
        return loss

    def _upload(self, inputs: np.ndarray, targets: np.ndarray) -> Batch:
        if self.parallel is None:
            return Tensor(inputs, device=self.device), Tensor(targets, device=self.device)
        return self.parallel.shard(inputs, targets)

    # --- resuming ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the step count, and the sum of losses that are not reported yet.

        The rest of the state is in the model, the optimizer, the scheduler, the loader and the random generator.
        """
        # A float32 survives the conversion to float64 and back, so the sum continues exactly.
        return {"step": self.done, "loss_sum": self.ranks.total(self.loss_sum), "loss_count": self._counted}

    @property
    def loss_sum(self) -> float:
        """Sum of this rank's losses that are not reported yet. Waits for the device."""
        return float(self._loss.item())

    def load_state_dict(self, state: Mapping[str, Any], loss_sum: float | None = None) -> None:
        """Restore a state of `state_dict`, after the parts listed there were loaded; `loss_sum` is this rank's."""
        self.close()
        self.done = int(state["step"])
        total = float(state["loss_sum"]) if self.ranks.first else 0.0
        self._loss.fill_(total if loss_sum is None else loss_sum)
        self._counted = int(state["loss_count"])


def _endless(loader: ShardedLoader) -> Generator[Batch]:
    """Iterate over batches, epoch after epoch."""
    while True:
        yield from loader


def _parts(x: Tensor | Shards) -> Sequence[Tensor]:
    return x.tensors if isinstance(x, Shards) else (x,)


def _spread(tokens: np.ndarray, options: TrainOptions) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return fixed batches spread evenly over the validation text."""
    windows = TokenWindows(tokens, options.context)
    most = _EVALUATION_BATCHES * options.batch_size
    chosen = np.unique(np.linspace(0, len(windows) - 1, min(len(windows), most)).astype(np.int64))
    return [windows.batch(chosen[i : i + options.batch_size]) for i in range(0, len(chosen), options.batch_size)]
