"""Memory of a language model: estimated before anything is loaded, and compared with the device's."""

from __future__ import annotations

import os
from dataclasses import dataclass

from polyhal import Device
from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.llm.blocks import BLOCK_FORMATS
from polyhal.llm.files import ModelFiles, StoredWeight
from polyhal.models import DecoderConfig

_PROMPT = 512
"""Tokens of a prompt for which intermediate values are estimated."""
_SHORTEST = 256
"""Tokens of the shortest context that a remedy names."""
_USABLE = 0.95
_BASE = 32 << 20
_TYPES = {"q8_0": 8.5, "q4_k_m": 4.9, "q2_k": 3.0}
"""Bits per weight of types that `polyhal quantize` writes."""


class ModelDoesNotFitError(PolyhalError, MemoryError):
    """A model needs more memory than its device has."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of a model on a device."""

    weights: int
    cache: int
    work: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.weights + self.cache + self.work


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model that is to be loaded: its files, its context, and the dtypes of weights and cache."""

    files: ModelFiles
    config: DecoderConfig
    context: int
    dtype: DType
    cache_dtype: DType

    def need(self, sequences: int = 1) -> MemoryNeed:
        """Estimate its memory for `sequences` texts at a time."""
        one = memory_need(self.files, self.config, self.context, self.dtype, self.cache_dtype)
        return MemoryNeed(one.weights, sequences * one.cache, one.work)


def stays_in_blocks(name: str, weight: StoredWeight) -> bool:
    """Return whether a weight keeps its format on the device: matrices with a kernel do."""
    return weight.format in BLOCK_FORMATS and len(weight.shape) in (2, 3) and name.endswith(".weight")


def cache_bytes(config: DecoderConfig, context: int, dtype: DType) -> int:
    """Return the bytes of the keys and values of `context` positions."""
    width = config.head_width if config.latent is None else max(config.head_width, config.latent.value_width)
    scale = dtypes.float32.itemsize if dtype is dtypes.int8 else 0
    return 2 * config.num_hidden_layers * config.kv_heads * context * (width * dtype.itemsize + scale)


def memory_need(files: ModelFiles, config: DecoderConfig, context: int, dtype: DType, cache_dtype: DType) -> MemoryNeed:
    """Estimate the memory of a model with a context of `context` tokens."""
    weights = 0
    for name, weight in files.weights.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weights += weight.nbytes if stays_in_blocks(name, weight) else weight.count * dtype.itemsize
    widest = 4 * config.hidden_size + 3 * config.intermediate_size + 2 * config.num_attention_heads * config.head_width
    prompt = min(_PROMPT, context)
    scores = config.num_attention_heads * prompt * prompt
    work = _BASE + 4 * (prompt * widest + scores + 3 * config.vocab_size)
    return MemoryNeed(weights, cache_bytes(config, context, cache_dtype), work)


def usable_memory(device: Device) -> int | None:
    """Return the bytes that a model may take on a device; None if unknown."""
    info = device.info
    total = info.memory
    if info.type is DeviceType.CPU or not total:
        if not hasattr(os, "sysconf"):
            return None
        page = os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * page
        return max(free, int(_USABLE * os.sysconf("SC_PHYS_PAGES") * page) // 2)
    return int(_USABLE * total) - device.memory_stats().used


def check_fits(model: PlannedModel, device: Device, draft: PlannedModel | None = None, sequences: int = 1) -> None:
    """Raise ModelDoesNotFitError, with the numbers and a remedy, if a model is too large for a device.

    The memory includes the context of `sequences` texts at a time, and all that the `draft` model needs for them.
    """
    usable = usable_memory(device)
    planned = [model] if draft is None else [model, draft]
    total = sum(one.need(sequences).total for one in planned)
    if usable is None or total <= usable:
        return
    fix, expected = _remedy(model, draft, sequences, usable), f"at most {gib(usable)}"
    problem = "; and as draft model ".join(_described(one, sequences) for one in planned)
    raise ModelDoesNotFitError(message("load", problem, expected=expected, fix=fix, device=device))


def _described(model: PlannedModel, sequences: int) -> str:
    need = model.need(sequences)
    contexts = "a context" if sequences == 1 else f"{sequences} contexts"
    return (
        f"{model.files.name} needs {gib(need.total)}: {gib(need.weights)} for weights, {gib(need.cache)} for {contexts} of "
        f"{model.context} tokens, {gib(need.work)} for intermediate values"
    )


def _remedy(model: PlannedModel, draft: PlannedModel | None, sequences: int, usable: int) -> str:
    planned = [model] if draft is None else [model, draft]
    fixed = sum(one.need().weights + one.need().work for one in planned)
    contexts = sum(one.need().cache for one in planned)
    if 1 <= (fitting := (usable - fixed) // max(contexts, 1)) < sequences:
        return f"use --slots {fitting}, or a smaller --context"
    per_token = sum(cache_bytes(one.config, 1, one.cache_dtype) for one in planned)
    if (room := (usable - fixed) // max(1, sequences * per_token)) >= _SHORTEST:
        return f"use --context {room // _SHORTEST * _SHORTEST}"
    if draft is not None and model.need(sequences).total <= usable:
        return "leave out the draft model"
    need, files = model.need(), model.files
    least = cache_bytes(model.config, 2048, model.cache_dtype) + need.work
    for name, bits in _TYPES.items():
        nbytes = int(files.parameters * bits / 8)
        if nbytes < need.weights and nbytes + least <= usable:
            return f"use `polyhal quantize --type {name}` ({gib(nbytes)} of weights) and --context 2048"
    return "use a smaller model"


def gib(nbytes: int) -> str:
    """Write a number of bytes."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes / 1024:.1f} KiB"
