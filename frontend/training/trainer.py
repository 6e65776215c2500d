"""One training step and one evaluation of a language model, and everything that a later process needs to go on from there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhal import random
from polyhal.autograd import no_grad
from polyhal.creation import zeros
from polyhal.hal import dtypes
from polyhal.models import GPT
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW, LambdaLR
from polyhal.tensor import Tensor, as_tensor
from polyhal.training.options import TrainOptions
from polyhal.training.schedule import share_of_peak
from polyhal.training.windows import Windows, evenly_spread

_BETAS = (0.9, 0.99)
_EVALUATION_BATCHES = 20


class Trainer:
    """Trains `model` on `training` tokens (T,) and measures it on `validation` tokens, of which there may be none.

    A step enqueues work and waits for nothing: losses add up on the device until `mean_loss` reads them.
    """

    def __init__(self, model: GPT, options: TrainOptions, training: np.ndarray, validation: np.ndarray) -> None:
        self.model = model
        self.options = options
        self.device = model.lm_head.weight.device
        self.done = 0
        """Steps taken."""
        self.windows = Windows(training, options.context, options.batch_size, options.seed)
        self._validation = evenly_spread(validation, options.context, options.batch_size, _EVALUATION_BATCHES) if len(validation) else []
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]
        # Decay pulls weights towards zero, which makes no sense for the scales and offsets of norms and for biases.
        groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = AdamW([g for g in groups if g["params"]], options.lr, _BETAS, weight_decay=options.weight_decay)
        self.scheduler = LambdaLR(self.optimizer, self._share_of_peak)
        self._loss = zeros((), device=self.device)
        self._counted = 0

    def _share_of_peak(self, step: int) -> float:
        o = self.options
        return share_of_peak(step, warmup=o.warmup, steps=o.steps, schedule=o.schedule)

    @property
    def epoch(self) -> float:
        """How often the training text has been seen."""
        return self.windows.epoch(self.done * self.options.accumulate)

    @property
    def steps_per_epoch(self) -> float:
        return self.windows.per_epoch / (self.options.batch_size * self.options.accumulate)

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return float(self.scheduler.get_last_lr()[0])

    def step(self) -> None:
        """Take one optimizer step on the next batches."""
        self.model.train()
        first = self.done * self.options.accumulate
        for index in range(first, first + self.options.accumulate):
            loss = self._backward(index)
            with no_grad():
                self._loss = self._loss + loss.detach()
        self._counted += self.options.accumulate
        if self.options.clip:
            clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.done += 1

    def rehearse(self) -> None:
        """Compute the gradients of one step and wait for them, leaving no trace: for measuring how long a step takes."""
        state = random.default_generator.get_state()
        self.model.train()
        for index in range(self.options.accumulate):
            self._backward(index)
        self.optimizer.zero_grad()
        random.default_generator.set_state(state)
        self.device.synchronize()

    def _backward(self, index: int) -> Tensor:
        """The loss of batch `index`, its share of the gradient added to the parameters'."""
        inputs, targets = self.windows.batch(index)
        loss = self.model.loss(self._upload(inputs), self._upload(targets))
        (loss / self.options.accumulate if self.options.accumulate > 1 else loss).backward()
        return loss

    def mean_loss(self) -> float:
        """The mean training loss, in nats per token, since the last call. Waits for the device."""
        mean = float(self._loss.item()) / self._counted if self._counted else math.nan
        self._loss = zeros((), device=self.device)
        self._counted = 0
        return mean

    def evaluate(self) -> float | None:
        """The mean loss, in nats per token, on fixed windows of the validation text; None where there is none."""
        if not self._validation:
            return None
        self.model.eval()
        total = zeros((), device=self.device)
        count = 0
        with no_grad():
            for inputs, targets in self._validation:
                total = total + self.model.loss(self._upload(inputs), self._upload(targets)) * float(targets.size)
                count += targets.size
        return float(total.item()) / count

    def _upload(self, numbers: np.ndarray) -> Tensor:
        return Tensor(numbers, dtype=dtypes.int32, device=self.device)

    # --- going on later ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What besides weights and optimizer decides all later steps: the step, which is the data position too, the random
        numbers' position, and the loss that is added up but not reported yet."""
        return {
            "step": self.done,
            "random": random.default_generator.get_state(),
            # A float32 is written exactly by its shortest decimal, so JSON does not change the sum.
            "loss_sum": float(self._loss.item()),
            "loss_count": self._counted,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called; weights and optimizer are loaded separately."""
        self.done = int(state["step"])
        random.default_generator.set_state(state["random"])
        self.scheduler.load_state_dict({"last_epoch": self.done})
        self._loss = as_tensor(np.float32(state["loss_sum"]), self.device)
        self._counted = int(state["loss_count"])
