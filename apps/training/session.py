"""A run: steps, metrics, samples and checkpoints, until it is complete or stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from polyhal.hal.errors import NonFiniteError, message
from polyhal.models import generate
from polyhal.text import Tokenizer, without_text
from polyhal.training.checkpoint import save_model, save_run
from polyhal.training.corpus import Corpus
from polyhal.training.folder import BEST, LAST, RunFolder, writing
from polyhal.training.metrics import MetricsRow
from polyhal.training.trainer import Trainer
from polyhal.utils.metrics import MetricsSink

_SAMPLE_TOKENS = 200
_SAMPLE_TEMPERATURE = 0.8
_PROMPT_CHARACTERS = 16


class RunObserver(Protocol):
    """Receives the events of a run."""

    def stepped(self, step: int) -> None:
        """Called after each step was enqueued."""

    def logged(self, row: MetricsRow) -> None:
        """Called with new metrics."""

    def sampled(self, step: int, prompt: str, text: str) -> None:
        """Called after the model has continued `prompt` with `text`."""

    def rebalanced(self, step: int, text: str) -> None:
        """Called after the division of batches among the devices has changed; `text` describes it."""

    def saved(self, name: str, step: int) -> None:
        """Called after a checkpoint was written."""


@dataclass(slots=True)
class Session:
    """A run in progress: its trainer, its folder, and the lowest loss so far."""

    trainer: Trainer
    tokenizer: Tokenizer
    corpus: Corpus
    folder: RunFolder
    best: float | None = None
    sinks: Sequence[MetricsSink] = ()
    """Receivers of metrics in addition to the folder's file, on rank 0."""

    def run(self, observer: RunObserver, stop: Callable[[], bool]) -> bool:
        """Train until all steps are taken (returns True), or until `stop` returns True between steps (False). Saves the state.

        All ranks call this; rank 0 writes shared results, and `stop` of any rank stops all.
        Raises NonFiniteError if the loss is not finite; earlier checkpoints are kept.
        """
        trainer, options, ranks = self.trainer, self.trainer.options, self.trainer.ranks
        try:
            if not ranks.agree(self.folder.last.exists()):
                self._save(LAST, observer)  # fails now on a full or read-only disk, not after the first minutes
            begin, begin_step = time.perf_counter(), trainer.done
            while trainer.done < options.steps:
                if ranks.any(stop()):
                    self._save(LAST, observer)
                    return False
                rate = trainer.learning_rate
                before = trainer.rebalanced
                trainer.step()
                step = trainer.done
                if (
                    trainer.rebalanced > before
                    and trainer.parallel is not None
                    and trainer.parallel.balancer is not None
                ):
                    observer.rebalanced(step, trainer.parallel.balancer.decisions[-1].text)
                observer.stepped(step)
                evaluating = self._due(options.eval_every)
                if evaluating or self._due(options.log_every):
                    loss = self._finite(trainer.mean_loss())
                    speed = (step - begin_step) * options.tokens_per_step / (time.perf_counter() - begin)
                    validation = trainer.evaluate() if evaluating else None
                    row = MetricsRow(step, round(trainer.epoch, 4), loss, validation, rate, round(speed, 1))
                    if ranks.first:
                        with writing(self.folder.metrics.path):
                            self.folder.metrics.log(step, row.values)
                        for sink in self.sinks:
                            sink.log(step, row.values)
                    observer.logged(row)
                    if evaluating:
                        self._keep(loss if validation is None else validation, observer)
                    begin, begin_step = time.perf_counter(), step
                if self._due(options.sample_every) and ranks.first:
                    pause = time.perf_counter()
                    prompt = self.prompt()
                    observer.sampled(step, prompt, self.sample(prompt))
                    begin += time.perf_counter() - pause
            return True
        finally:
            trainer.close()

    def _due(self, interval: int) -> bool:
        """Return whether an action with this interval is due: at multiples of it (0: never), and after the last step."""
        done = self.trainer.done
        return bool(interval) and (done % interval == 0 or done == self.trainer.options.steps)

    def prompt(self) -> str:
        """Return the beginning of the validation text, on which the model is not trained."""
        held_out = (
            self.corpus.text[int(len(self.corpus.text) * (1 - self.trainer.options.val_split)) :] or self.corpus.text
        )
        line = next((line for line in held_out.splitlines()[1:] if line.strip()), held_out)
        return line.strip()[:_PROMPT_CHARACTERS] or held_out[:1]

    def sample(self, prompt: str) -> str:
        """Continue `prompt` with the model. A separate random generator leaves training unaffected."""
        ids = self.tokenizer.encode(prompt)
        model = self.trainer.model_on_one_device()
        excluded = without_text(self.tokenizer)
        seed = self.trainer.options.seed
        tokens = generate(model, ids, _SAMPLE_TOKENS, _SAMPLE_TEMPERATURE, seed=seed, excluded_ids=excluded)
        return self.tokenizer.decode(tokens)

    def _keep(self, score: float, observer: RunObserver) -> None:
        """Save the state as `last`, and the model as `best` if it is the best.

        `best` is saved first: after a crash in between, resuming from `last` saves it again.
        """
        if self.best is None or score < self.best:
            self.best = score
            self._save(BEST, observer)
        self._save(LAST, observer)

    def _save(self, name: str, observer: RunObserver) -> None:
        save = save_model if name == BEST else save_run
        path = self.folder.path / name
        with writing(path):
            save(path, self.trainer, self.tokenizer, self.corpus, self.best)
        observer.saved(name, self.trainer.done)

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise NonFiniteError(
                message(
                    None,
                    f"the training loss became {loss} before step {self.trainer.done}",
                    fix=f"lower --lr (now {self.trainer.options.lr:g}) or raise --warmup; the checkpoints are older",
                )
            )
        return loss
