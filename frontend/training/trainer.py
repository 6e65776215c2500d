"""Training steps and evaluations of a language model, and the state to resume from."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from polyhal import random
from polyhal.autograd import no_grad
from polyhal.creation import zeros
from polyhal.data import DataLoader, TokenWindows
from polyhal.models import GPT
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW, LambdaLR
from polyhal.steps.jit import jit
from polyhal.tensor import Tensor
from polyhal.training.options import TrainOptions
from polyhal.training.schedule import share_of_peak

_BETAS = (0.9, 0.99)
_EVALUATION_BATCHES = 20


class Trainer:
    """Trains `model` on `training` tokens (T,) and evaluates it on `validation` tokens, which may be empty.

    A step does not wait for the device: losses are summed there until `mean_loss` reads them. Steps and evaluations are
    captured from the first one on, so that a resumed run computes the same; `eager` runs op by op.
    """

    def __init__(
        self,
        model: GPT,
        options: TrainOptions,
        training: np.ndarray,
        validation: np.ndarray,
        *,
        eager: bool = False,
    ) -> None:
        self.model = model
        self.options = options
        self.device = model.lm_head.weight.device
        self.done = 0
        """How many steps were taken."""
        windows = TokenWindows(training, options.context)
        # Batches of one size need one set of kernels, so the last, smaller batch of an epoch is dropped unless it is the only
        # one.
        whole = len(windows) >= options.batch_size
        self.loader = DataLoader(
            windows, options.batch_size, shuffle=True, drop_last=whole, seed=options.seed, device=self.device
        )
        self._stream: Generator[tuple[Tensor, Tensor]] | None = None
        self._validation = _spread(validation, options) if len(validation) else []
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]
        # Weight decay makes no sense for the scales and offsets of norms and for biases.
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = AdamW(
            [g for g in groups if g["params"]], options.lr, _BETAS, weight_decay=options.weight_decay
        )
        self.scheduler = LambdaLR(self.optimizer, self._share_of_peak)
        self._loss = zeros((), device=self.device)
        self._counted = 0
        self._total = zeros((), device=self.device)
        self._update = self._learn if eager else jit(self._learn, warm_up=False)
        self._measure = self._add_up if eager else jit(self._add_up, warm_up=False)

    def _share_of_peak(self, step: int) -> float:
        o = self.options
        return share_of_peak(step, warmup=o.warmup, steps=o.steps, schedule=o.schedule)

    @property
    def epoch(self) -> float:
        """How many epochs were trained."""
        return self.loader.epoch + self.loader.position / len(self.loader)

    @property
    def steps_per_epoch(self) -> float:
        """Optimizer steps that one pass over the data takes."""
        return len(self.loader) / self.options.accumulate

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(self.scheduler.get_last_lr()[0])

    def step(self) -> None:
        """Take one optimizer step on the next batches."""
        self.model.train()
        if self._stream is None:
            self._stream = _endless(self.loader)
        self._update([next(self._stream) for _ in range(self.options.accumulate)])
        self._counted += self.options.accumulate
        self.done += 1

    def _learn(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """The work of a step on the device, with state changed in place."""
        for inputs, targets in batches:
            loss = self.model.loss(inputs, targets)
            (loss / len(batches) if len(batches) > 1 else loss).backward()
            with no_grad():
                self._loss.add_(loss.detach())
        if self.options.clip:
            clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()

    @contextmanager
    def rehearsal(self) -> Iterator[Callable[[], None]]:
        """Provide a function that takes a step and waits for it, to measure the time of steps.

        After the block the state is restored. Raises RuntimeError after the first step.
        """
        if self.done:
            raise RuntimeError(f"a run of {self.done} steps cannot be rehearsed; rehearse before the first step")
        generator = random.default_generator.get_state()
        parameters = [(p, p.detach().clone()) for p in self.model.parameters()]
        inputs, targets = self.loader.read(self.loader.order(0)[: self.options.batch_size])

        def rehearse() -> None:
            self.model.train()
            self._update([(self._upload(inputs), self._upload(targets)) for _ in range(self.options.accumulate)])
            self.device.synchronize()

        try:
            yield rehearse
        finally:
            with no_grad():
                for p, before in parameters:
                    p.copy_(before)
            # In place, because the captured step refers to this state.
            for state in self.optimizer.state.values():
                state.update(step=0)
                state["exp_avg"].zero_()
                state["exp_avg_sq"].zero_()
            self.scheduler.load_state_dict({"last_epoch": 0})
            self._loss.zero_()
            random.default_generator.set_state(generator)

    def reschedule(self, options: TrainOptions) -> None:
        """Change options that do not affect the steps taken so far: their number, and what happens between steps."""
        self.options = options
        self.scheduler.load_state_dict({"last_epoch": self.scheduler.last_epoch})

    def mean_loss(self) -> float:
        """Return the mean training loss since the last call, in nats per token. Waits for the device."""
        mean = float(self._loss.item()) / self._counted if self._counted else math.nan
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
            for inputs, targets in self._validation:
                self._measure(self._upload(inputs), self._upload(targets))
                count += targets.size
        return float(self._total.item()) / count

    def _add_up(self, inputs: Tensor, targets: Tensor) -> None:
        loss = self.model.loss(inputs, targets)
        self._total.add_(loss * float(targets.size))

    def _upload(self, numbers: np.ndarray) -> Tensor:
        return Tensor(numbers, device=self.device)

    def close(self) -> None:
        """Stop prefetching batches."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # --- going on later ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the step count, and the sum of losses that are not reported yet.

        The rest of the state is in the model, the optimizer, the scheduler, the loader and the random generator.
        """
        # A float32 survives the conversion to float64 and back, so the sum continues exactly.
        return {"step": self.done, "loss_sum": float(self._loss.item()), "loss_count": self._counted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `state_dict`, after the parts listed there were loaded."""
        self.close()
        self.done = int(state["step"])
        self._loss.fill_(float(state["loss_sum"]))
        self._counted = int(state["loss_count"])


def _endless(loader: DataLoader) -> Generator[tuple[Tensor, Tensor]]:
    """Iterate over batches, epoch after epoch."""
    while True:
        yield from loader


def _spread(tokens: np.ndarray, options: TrainOptions) -> list[tuple[np.ndarray, np.ndarray]]:
    """Fixed batches spread evenly over the validation text."""
    windows = TokenWindows(tokens, options.context)
    most = _EVALUATION_BATCHES * options.batch_size
    chosen = np.unique(np.linspace(0, len(windows) - 1, min(len(windows), most)).astype(np.int64))
    return [windows.batch(chosen[i : i + options.batch_size]) for i in range(0, len(chosen), options.batch_size)]
