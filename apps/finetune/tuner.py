"""Training steps of adapters, and the state for resuming."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from polyhal import Device, Tensor, jit, manual_seed, no_grad, tensor, zeros
from polyhal.adapters import LoraSettings, adapters, save_adapter
from polyhal.finetune.options import TuneOptions
from polyhal.finetune.rows import IGNORED, TokenRows
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.models import Stored
from polyhal.nn import Module
from polyhal.nn import functional as F
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW, LambdaLR
from polyhal.serialize import load_checkpoint, save_checkpoint
from polyhal.training import share_of_peak

ADAPTER, STATE = "adapter", "state"


class Tuner:
    """Trains the adapters of a language model on rows of tokens.

    `model(ids, attention_mask=mask)` returns logits (B, T, V) of ids (B, T). A step does not wait for the device, and is
    captured unless `eager`. The loss is the mean cross entropy of all learned tokens of a step. `stored` is an argument of
    `save_adapter`. Raises ValueError without rows.
    """

    def __init__(
        self,
        model: Module,
        settings: LoraSettings,
        options: TuneOptions,
        rows: TokenRows,
        *,
        eager: bool = False,
        stored: Mapping[str, Stored] | None = None,
    ) -> None:
        if not len(rows):
            raise ValueError(
                message("Tuner", "there are no rows", expected="at least one example with tokens to learn")
            )
        self.stored = stored
        self.model, self.settings, self.options, self.rows = model, settings, options, rows
        self.device: Device = next(model.parameters()).device
        self.trained = [p for p in model.parameters() if p.requires_grad]
        """Weights of the adapters."""
        manual_seed(options.seed)
        self.optimizer = AdamW(self.trained, options.lr, weight_decay=options.weight_decay)
        self.scheduler = LambdaLR(self.optimizer, self._share_of_peak)
        self.done = 0
        """Number of steps taken."""
        self._loss = zeros((), device=self.device)
        self._counted = 0
        self._update = self._learn if eager else jit(self._learn, warm_up=False)

    def _share_of_peak(self, step: int) -> float:
        o = self.options
        return share_of_peak(step, warmup=o.warmup, steps=o.steps, schedule=o.schedule)

    @property
    def epoch(self) -> float:
        """Number of passes over the rows."""
        return self.done * self.options.batch_size * self.options.accumulate / len(self.rows)

    def step(self) -> None:
        """Take one optimizer step."""
        self.model.train()
        chosen = self._chosen(self.done)
        learned = sum(int((self.rows.targets[batch] != IGNORED).sum()) for batch in chosen)
        share = tensor(1 / learned, dtype=float32, device=self.device)
        self._update([self._batch(batch) for batch in chosen], share)
        self._counted += 1
        self.done += 1

    def mean_loss(self) -> float:
        """Return the mean loss of the steps since the last call; waits for the device."""
        total, count = self._loss.item(), max(self._counted, 1)
        self._loss.zero_()
        self._counted = 0
        return float(total) / count

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the adapters in PEFT's form to `adapter`, and the state for `resume` to `state`."""
        target = Path(folder)
        save_adapter(self.model, target / ADAPTER, self.settings, self.stored)
        weights = {path: [layer.lora_A.weight, layer.lora_B.weight] for path, layer in adapters(self.model)}
        extra = {"done": self.done, "options": asdict(self.options), "rows": len(self.rows), "weights": weights}
        save_checkpoint(target / STATE, optimizer=self.optimizer, scheduler=self.scheduler, extra=extra)

    def resume(self, folder: str | os.PathLike[str]) -> None:
        """Restore a state of `save`, after which training continues exactly.

        Raises FileNotFoundError, CorruptFileError, and IncompatibleFileError for other settings or data.
        """
        path = Path(folder) / STATE
        extra: dict[str, Any] = load_checkpoint(path, optimizer=self.optimizer, scheduler=self.scheduler)
        for name, found, own in (
            ("options", extra["options"], asdict(self.options)),
            ("rows", extra["rows"], len(self.rows)),
            ("adapters", sorted(extra["weights"]), sorted(path for path, _ in adapters(self.model))),
        ):
            if found != own:
                raise IncompatibleFileError(message("finetune", f"{path} has {name} {found}", expected=str(own)))
        with no_grad():
            for name, layer in adapters(self.model):
                for weight, saved in zip((layer.lora_A, layer.lora_B), extra["weights"][name], strict=True):
                    weight.weight.copy_(saved)
        self.done = extra["done"]

    def _chosen(self, step: int) -> list[np.ndarray]:
        """Return the rows of each batch of a step: passes over all rows, each in another order."""
        per_step = self.options.batch_size * self.options.accumulate
        order = np.fromiter(self._order(step * per_step, per_step), np.int64, per_step)
        return list(order.reshape(self.options.accumulate, self.options.batch_size))

    def _order(self, start: int, count: int) -> Iterator[int]:
        total = len(self.rows)
        epoch, order = -1, np.zeros(0, np.int64)
        for place in range(start, start + count):
            if place // total != epoch:
                epoch = place // total
                order = np.random.default_rng([self.options.seed, epoch]).permutation(total)
            yield int(order[place % total])

    def _batch(self, batch: np.ndarray) -> tuple[Tensor, Tensor, Tensor | None]:
        rows = self.rows
        arrays = [rows.ids[batch], rows.targets[batch], *([rows.examples[batch]] if rows.packed else [])]
        ids, targets, *examples = (tensor(np.ascontiguousarray(a), device=self.device) for a in arrays)
        return ids, targets, examples[0] if examples else None

    def _learn(self, batches: list[tuple[Tensor, Tensor, Tensor | None]], share: Tensor) -> None:
        for ids, targets, examples in batches:
            mask = None if examples is None else _same_example(examples)
            logits = self.model(ids, attention_mask=mask).to(float32)
            flat = logits.reshape(-1, logits.shape[-1])
            loss = F.cross_entropy(flat, targets.reshape(-1), ignore_index=IGNORED, reduction="sum") * share
            loss.backward()
            with no_grad():
                self._loss.add_(loss.detach())
        if self.options.clip:
            clip_grad_norm_(self.trained, self.options.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()


def _same_example(examples: Tensor) -> Tensor:
    """Return which keys belong to the example of a token, (B, 1, T, T); the model adds causal order."""
    batch, length = examples.shape
    result: Tensor = examples.reshape(batch, 1, length, 1) == examples.reshape(batch, 1, 1, length)
    return result
