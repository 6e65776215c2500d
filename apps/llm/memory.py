"""Memory of a language model: estimated before anything is loaded, and compared with the device's."""

from __future__ import annotations

import os
from dataclasses import dataclass

from polyhal import Device
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.llm.blocks import BLOCK_FORMATS
from polyhal.llm.files import ModelFiles, StoredWeight
from polyhal.models import DecoderConfig

_PROMPT = 512
"""Tokens of a prompt for which intermediate values are estimated."""
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


def stays_in_blocks(name: str, weight: StoredWeight) -> bool:
    """Return whether a weight keeps its format on the device: matrices with a kernel do."""
    return weight.format in BLOCK_FORMATS and len(weight.shape) in (2, 3) and name.endswith(".weight")


def cache_bytes(config: DecoderConfig, context: int, dtype: DType) -> int:
    """Return the bytes of the keys and values of `context` positions."""
    width = config.head_width if config.latent is None else max(config.head_width, config.latent.value_width)
    return 2 * config.num_hidden_layers * config.kv_heads * width * context * dtype.itemsize


def memory_need(files: ModelFiles, config: DecoderConfig, context: int, dtype: DType) -> MemoryNeed:
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
    return MemoryNeed(weights, cache_bytes(config, context, dtype), work)


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


def check_fits(files: ModelFiles, config: DecoderConfig, context: int, dtype: DType, device: Device) -> None:
    """Raise ModelDoesNotFitError, with the numbers and a remedy, if a model is too large for a device."""
    usable = usable_memory(device)
    need = memory_need(files, config, context, dtype)
    if usable is None or need.total <= usable:
        return
    problem = (
        f"{files.name} needs {gib(need.total)}: {gib(need.weights)} for weights, {gib(need.cache)} for a context of "
        f"{context} tokens, {gib(need.work)} for intermediate values"
    )
    raise ModelDoesNotFitError(
        message(
            "load",
            problem,
            expected=f"at most {gib(usable)}",
            fix=_remedy(files, config, need, dtype, usable),
            device=device,
        )
    )


def _remedy(files: ModelFiles, config: DecoderConfig, need: MemoryNeed, dtype: DType, usable: int) -> str:
    room = usable - need.weights - need.work
    fitting = room // max(1, cache_bytes(config, 1, dtype))
    if fitting >= 256:
        return f"use --context {fitting // 256 * 256}"
    shortest = cache_bytes(config, 2048, dtype)
    for name, bits in _TYPES.items():
        nbytes = int(files.parameters * bits / 8)
        if nbytes < need.weights and nbytes + shortest + need.work <= usable:
            return f"use `polyhal quantize --type {name}` ({gib(nbytes)} of weights) and --context 2048"
    return "use a smaller model"


def gib(nbytes: int) -> str:
    """Write a number of bytes."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes / 1024:.1f} KiB"
