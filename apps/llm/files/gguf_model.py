"""GGUF files as model files: weights by the decoder's names, with rows in its order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.llm.files.gguf_config import RULES, MetadataRule, config_of
from polyhal.llm.files.gguf_file import GgufFile, GgufTensor
from polyhal.llm.files.model_files import ModelFiles, StoredWeight
from polyhal.models import DecoderConfig, checkpoint_names
from polyhal.text import tokenizer_from_gguf

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_MOST_PARTS = 1000
_TEMPLATE = "tokenizer.chat_template"

_NAMES: dict[str, tuple[str, ...]] = {
    "model.embed_tokens": ("token_embd",),
    "model.embed_positions": ("position_embd",),
    "model.norm": ("output_norm",),
    "lm_head": ("output", "token_embd"),
}
_LAYER_NAMES: dict[str, tuple[str, ...]] = {
    "self_attn.q_proj": ("attn_q", "attn_qkv"),
    "self_attn.k_proj": ("attn_k", "attn_qkv"),
    "self_attn.v_proj": ("attn_v", "attn_qkv"),
    "self_attn.o_proj": ("attn_output",),
    "self_attn.q_norm": ("attn_q_norm",),
    "self_attn.k_norm": ("attn_k_norm",),
    "self_attn.q_a_proj": ("attn_q_a",),
    "self_attn.q_a_layernorm": ("attn_q_a_norm",),
    "self_attn.q_b_proj": ("attn_q_b",),
    "self_attn.kv_a_proj_with_mqa": ("attn_kv_a_mqa",),
    "self_attn.kv_a_layernorm": ("attn_kv_a_norm",),
    "self_attn.kv_b_proj": ("attn_kv_b",),
    "input_layernorm": ("attn_norm",),
    "post_attention_layernorm": ("post_attention_norm", "ffn_norm"),
    "pre_feedforward_layernorm": ("ffn_norm",),
    "post_feedforward_layernorm": ("post_ffw_norm",),
    "mlp.gate_proj": ("ffn_gate", "ffn_up"),
    "mlp.up_proj": ("ffn_up",),
    "mlp.down_proj": ("ffn_down",),
    "mlp.gate": ("ffn_gate_inp",),
    "mlp.experts.gate_proj": ("ffn_gate_exps",),
    "mlp.experts.up_proj": ("ffn_up_exps",),
    "mlp.experts.down_proj": ("ffn_down_exps",),
    "mlp.shared_expert.gate_proj": ("ffn_gate_shexp",),
    "mlp.shared_expert.up_proj": ("ffn_up_shexp",),
    "mlp.shared_expert.down_proj": ("ffn_down_shexp",),
    "mlp.shared_expert_gate": ("ffn_gate_inp_shexp",),
}
"""Tensors by the decoder's layers, the first that exists; a name that serves several layers is a tensor of all their rows."""
_FUSED = {"attn_qkv": ("q_proj", "k_proj", "v_proj"), "ffn_up": ("gate_proj", "up_proj")}


def open_gguf(path: Path) -> ModelFiles:
    """Open a model in a GGUF file, or in the parts that follow it. Raises as `open_model` does."""
    files = _parts(path)
    metadata = files[0].metadata
    architecture = metadata.get("general.architecture")
    rule = RULES.get(architecture) if isinstance(architecture, str) else None
    if rule is None:
        problem, expected = f"{path} has architecture {architecture!r}", f"one of {', '.join(RULES)}"
        raise IncompatibleFileError(message("open_model", problem, expected=expected))
    places = {name: file for file in files for name in file.tensors}
    config = config_of(metadata, places)
    reader = _Reader(places, config, rule, path)
    template = metadata.get(_TEMPLATE)
    templates = {"default": template} if isinstance(template, str) else {}
    for key, value in metadata.items():
        if key.startswith(f"{_TEMPLATE}.") and isinstance(value, str):
            templates[key.removeprefix(f"{_TEMPLATE}.")] = value
    return ModelFiles(
        path,
        config,
        reader.weights(),
        partial(tokenizer_from_gguf, metadata),
        templates,
        _generation(metadata),
        str(metadata.get("general.name") or path.stem),
    )


def _generation(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens that end an answer."""
    ends = [metadata.get(f"tokenizer.ggml.{role}_token_id") for role in ("eos", "eot", "eom")]
    return {"eos_token_id": [e for e in ends if type(e) is int]}


def _parts(path: Path) -> list[GgufFile]:
    """Open all parts of a model. Raises CorruptFileError with the name of a missing one."""
    first = GgufFile(path)
    count = first.metadata.get("split.count", 1)
    if count in (0, 1):
        return [first]
    match = _PART.fullmatch(path.name)
    if type(count) is not int or not 1 < count <= _MOST_PARTS or match is None or int(match[3]) != count:
        problem = f"{path} is one of {count!r} parts"
        raise CorruptFileError(message("open_model", problem, expected="the name NAME-00001-of-000NN.gguf"))
    files = []
    for number in range(1, count + 1):
        part = path.with_name(f"{match[1]}-{number:05d}-of-{count:05d}.gguf")
        if not part.is_file():
            raise CorruptFileError(message("open_model", f"{part} is missing", expected=f"{count} parts"))
        files.append(first if part == path else GgufFile(part))
    return files


class _Reader:
    """Finds the decoder's parameters among the tensors of files."""

    def __init__(
        self, places: Mapping[str, GgufFile], config: Mapping[str, Any], rule: MetadataRule, path: Path
    ) -> None:
        self._places, self._rule, self._path = places, rule, path
        self._json = config
        self._config = DecoderConfig.from_json(config)

    def weights(self) -> dict[str, StoredWeight]:
        """Return all parameters. Raises CorruptFileError for a missing tensor."""
        return {name: self._weight(name) for name in checkpoint_names(self._json)}

    def _weight(self, name: str) -> StoredWeight:
        source, fused, part = self._source(name)
        file = self._places[source]
        tensor = file.tensors[source]
        rows = self._rows(name, tensor, fused, part)
        shape = tensor.shape if rows is None else (len(rows), *tensor.shape[1:])
        if name.endswith("shared_expert_gate.weight") and len(shape) == 1:
            shape = (1, *shape)
        shift = self._rule.norms_plus_one and "norm" in name and name.endswith(".weight")

        def read() -> np.ndarray:
            values = file.read(source)
            if rows is not None:
                values = values[rows]
            if shift:
                values = values - np.float32(1)
            return values.reshape(shape) if len(shape) != values.ndim else values

        nbytes = tensor.nbytes if rows is None else tensor.nbytes // tensor.shape[0] * len(rows)
        return StoredWeight(shape, tensor.type.name, nbytes, read)

    def _source(self, name: str) -> tuple[str, str, str]:
        """Return the tensor of a parameter, the name of the fused tensor or an empty text, and the layer's own name."""
        layer, kind = name.rsplit(".", 1)
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", layer)
        inner = match[2] if match else layer
        known = _LAYER_NAMES.get(inner, ()) if match else _NAMES.get(inner, ())
        prefix = f"blk.{match[1]}." if match else ""
        if kind == "e_score_correction_bias":
            known, kind = ("exp_probs_b",), "bias"
        candidates = [f"{prefix}{theirs}.{kind}" for theirs in known]
        if kind == "bias" and known == ("exp_probs_b",):
            candidates.append(f"{prefix}exp_probs_b")
        found = next((c for c in candidates if c in self._places), None)
        if found is None:
            expected = " or ".join(candidates) or "a tensor for it"
            raise CorruptFileError(message("open_model", f"{self._path} has no weight {name}", expected=expected))
        theirs = found.removeprefix(prefix).rsplit(".", 1)[0]
        part = inner.rsplit(".", 1)[-1]
        is_fused = part in _FUSED.get(theirs, ()) and (theirs != "ffn_up" or self._is_gate_in_up(prefix))
        return found, theirs if is_fused else "", part

    def _is_gate_in_up(self, prefix: str) -> bool:
        return self._config.gated and f"{prefix}ffn_gate.weight" not in self._places

    def _rows(self, name: str, tensor: GgufTensor, fused: str, part: str) -> np.ndarray | None:
        """Return the parameter's rows in the decoder's order; None for all in the order of the file."""
        c = self._config
        first, count = 0, tensor.shape[0]
        if fused:
            narrow = c.kv_heads * c.head_width
            sizes = {"q_proj": c.num_attention_heads * c.head_width, "k_proj": narrow, "v_proj": narrow}
            sizes |= {"gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
            parts = _FUSED[fused]
            if sum(sizes[p] for p in parts) != tensor.shape[0]:
                problem = f"tensor {tensor.name} of {self._path} has {tensor.shape[0]} rows"
                expected = " + ".join(str(sizes[p]) for p in parts)
                raise CorruptFileError(message("open_model", problem, expected=expected))
            first, count = sum(sizes[p] for p in parts[: parts.index(part)]), sizes[part]
        turned = self._rule.neighbours_rotate and name.rsplit(".", 2)[-2] in ("q_proj", "k_proj")
        if not turned:
            return np.arange(first, first + count) if fused else None
        if count % c.head_width or c.head_width % 2:
            problem = f"tensor {tensor.name} of {self._path} has {count} rows"
            raise CorruptFileError(message("open_model", problem, expected=f"a multiple of {c.head_width}"))
        # Rotated pairs are neighbours in the file, and at a distance of half a head in the decoder.
        pairs = np.arange(first, first + count).reshape(-1, c.head_width // 2, 2)
        return pairs.transpose(0, 2, 1).reshape(-1)
