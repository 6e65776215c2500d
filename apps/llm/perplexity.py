"""Perplexity of a text: the exponential of the mean loss per token, in windows that overlap."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polyhal import Tensor, jit, no_grad, tensor
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import SettingError, message
from polyhal.llm.language_model import LanguageModel
from polyhal.nn import functional as F

_IGNORED = -100
_LOGIT_BYTES = 1 << 28
"""Bytes of the logits of a batch; a window needs at least its own."""
_MOST_WINDOWS = 16
_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Loss of a text: mean and standard error, in nats per token."""

    loss: float
    loss_error: float
    scored: int
    """Number of tokens whose probabilities are part of the mean."""

    @property
    def value(self) -> float:
        """Perplexity."""
        return math.exp(self.loss)

    @property
    def error(self) -> float:
        """Standard error of the perplexity."""
        return self.value * self.loss_error


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of tokens, (count, context) each: inputs, and targets that are -100 where nothing is scored."""

    ids: np.ndarray
    targets: np.ndarray


def windows(ids: Sequence[int], context: int, stride: int) -> _Windows:
    """Divide a text into windows of `context` tokens, each `stride` after the one before.

    A token is scored once, in the first window that contains it and a token before it. Source:
    https://huggingface.co/docs/transformers/perplexity.
    """
    text = np.asarray(ids, np.int32)
    starts = range(0, max(1, len(text) - context + stride), stride)
    rows, targets = (np.full((len(starts), context), fill, np.int32) for fill in (0, _IGNORED))
    scored = 1
    for row, start in enumerate(starts):
        stop = min(start + context, len(text))
        rows[row, : stop - start] = text[start:stop]
        first = max(scored, start + 1)
        targets[row, first - start - 1 : stop - start - 1] = text[first:stop]
        scored = stop
    return _Windows(rows, targets)


def check_windows(context: int, stride: int, longest: int) -> None:
    """Raise SettingError unless windows of `context` tokens, each `stride` after another, fit a model of `longest` tokens."""
    for name, value, least, most in (("context", context, 2, longest), ("stride", stride, 1, context)):
        if not least <= value <= most:
            raise SettingError(message("perplexity", f"{name} is {value}", expected=f"{least} to {most}"))


def perplexity(
    model: LanguageModel,
    ids: Sequence[int],
    context: int | None = None,
    stride: int | None = None,
    batch: int | None = None,
    progress: Callable[[int, int, Perplexity], None] = lambda done, count, so_far: None,
) -> Perplexity:
    """Return the perplexity of a text's tokens.

    `context` is by default the model's. Windows begin `stride` tokens apart, by default half of the context; tokens behind the
    first window have the rest of a window or more before them. `batch` windows are computed at a time. Raises SettingError.
    """
    length = model.context if context is None else context
    step = max(1, length // 2) if stride is None else stride
    check_windows(length, step, model.context)
    if len(ids) < 2:
        raise SettingError(message("perplexity", f"the text has {len(ids)} tokens", expected="at least 2"))
    made = windows(ids, min(length, len(ids)), step)
    width, vocabulary = made.ids.shape[1], model.model.config.vocab_size
    fitting = min(_MOST_WINDOWS, _LOGIT_BYTES // (4 * width * vocabulary), len(made.ids))
    size = max(1, fitting if batch is None else batch)
    total = squares = 0.0
    scored = 0
    found = Perplexity(0.0, 0.0, 0)
    for done, losses in _losses(model, made, size):
        total, squares, scored = total + losses.sum(), squares + np.square(losses).sum(), scored + losses.size
        mean = total / max(scored, 1)
        variance = max(0.0, squares - scored * mean**2) / max(scored - 1, 1)
        found = Perplexity(float(mean), math.sqrt(variance / max(scored, 1)), scored)
        progress(done, len(made.ids), found)
    return found


def _losses(model: LanguageModel, made: _Windows, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of finished windows, and the losses of the scored tokens of a batch in float64."""
    device, decoder = model.model.device, model.model

    @jit
    def loss(ids: Tensor, targets: Tensor) -> Tensor:
        with no_grad():
            logits = decoder(ids).to(float32)
            flat = logits.reshape(-1, logits.shape[-1])
            return F.cross_entropy(flat, targets.reshape(-1), ignore_index=_IGNORED, reduction="none")

    def finished() -> tuple[int, np.ndarray]:
        stop, targets, result = pending.popleft()
        return stop, result.numpy().astype(np.float64)[targets.reshape(-1) != _IGNORED]

    pending: deque[tuple[int, np.ndarray, Tensor]] = deque()
    decoder.eval()
    for start in range(0, len(made.ids), size):
        ids, targets = made.ids[start : start + size], made.targets[start : start + size]
        missing = ((0, size - len(ids)), (0, 0))  # a full batch, so that one program serves all
        ids, targets = np.pad(ids, missing), np.pad(targets, missing, constant_values=_IGNORED)
        pending.append(
            (
                min(start + size, len(made.ids)),
                targets,
                loss(tensor(ids, device=device), tensor(targets, device=device)),
            )
        )
        if len(pending) > _IN_FLIGHT:
            yield finished()
    while pending:
        yield finished()
