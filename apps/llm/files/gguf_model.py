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
from polyhal.llm.files.gguf_file import GgufFile
from polyhal.llm.files.gguf_names import FUSED, candidates, layer_of, rows_of_pairs
from polyhal.llm.files.model_files import ModelFiles, StoredWeight
from polyhal.models import DecoderConfig, checkpoint_names
from polyhal.text import tokenizer_from_gguf

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_MOST_PARTS = 1000
_TEMPLATE = "tokenizer.chat_template"


def open_gguf(path: Path) -> ModelFiles:
    """Open a model in a GGUF file, or in the parts that follow it. Raises as `open_model` does."""
    files = _parts(path)
    metadata = files[0].metadata
    architecture = metadata.get("general.architecture")
    rule = RULES.get(architecture) if isinstance(architecture, str) else None
    if rule is None:
        problem, expected = f"{path} has architecture {architecture!r}", f"one of {', '.join(RULES)}"
        raise IncompatibleFileError(message("open_model", problem, expected=expected))
    tensors = {name: weight for file in files for name, weight in stored_tensors(file).items()}
    config = config_of(metadata, tensors)
    reader = _Reader(tensors, config, rule, path)
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


def stored_tensors(file: GgufFile) -> dict[str, StoredWeight]:
    """Return the tensors of a file by their names."""
    return {
        name: StoredWeight(t.shape, t.type.name, t.nbytes, partial(file.read, name)) for name, t in file.tensors.items()
    }


class _Reader:
    """Finds the decoder's parameters among the tensors of files."""

    def __init__(
        self, tensors: Mapping[str, StoredWeight], config: Mapping[str, Any], rule: MetadataRule, path: Path
    ) -> None:
        self._tensors, self._rule, self._path = tensors, rule, path
        self._json = config
        self._config = DecoderConfig.from_json(config)

    def weights(self) -> dict[str, StoredWeight]:
        """Return all parameters. Raises CorruptFileError for a missing tensor."""
        return {name: self._weight(name) for name in checkpoint_names(self._json)}

    def _weight(self, name: str) -> StoredWeight:
        source, fused = self._source(name)
        tensor = self._tensors[source]
        rows = self._rows(name, source, fused)
        shape = tensor.shape if rows is None else (len(rows), *tensor.shape[1:])
        if name.endswith("shared_expert_gate.weight") and len(shape) == 1:
            shape = (1, *shape)
        shift = self._rule.norms_plus_one and "norm" in name and name.endswith(".weight")

        def read() -> np.ndarray:
            values = tensor.read()
            if rows is not None:
                values = values[rows]
            if shift:
                values = values - np.float32(1)
            return values.reshape(shape) if len(shape) != values.ndim else values

        nbytes = tensor.nbytes if rows is None else tensor.nbytes // tensor.shape[0] * len(rows)
        return StoredWeight(shape, tensor.format, nbytes, read)

    def _source(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return the tensor of a parameter, and the layers that it holds if they are several."""
        prefix, names = candidates(name)
        found = next((n for n in names if prefix + n in self._tensors), None)
        if found is None:
            expected = " or ".join(prefix + n for n in names) or "a tensor for it"
            raise CorruptFileError(message("open_model", f"{self._path} has no weight {name}", expected=expected))
        theirs = found.partition(".")[0]
        layers = FUSED.get(theirs, ())
        is_fused = layer_of(name) in layers and (theirs != "ffn_up" or self._is_gate_in_up(prefix))
        return prefix + found, layers if is_fused else ()

    def _is_gate_in_up(self, prefix: str) -> bool:
        return self._config.gated and f"{prefix}ffn_gate.weight" not in self._tensors

    def _rows(self, name: str, source: str, fused: tuple[str, ...]) -> np.ndarray | None:
        """Return the parameter's rows in the decoder's order; None for all in the order of the file."""
        c, part = self._config, layer_of(name)
        total = self._tensors[source].shape[0]
        first, count = 0, total
        if fused:
            narrow = c.kv_heads * c.head_width
            sizes = {"q_proj": c.num_attention_heads * c.head_width, "k_proj": narrow, "v_proj": narrow}
            sizes |= {"gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
            if sum(sizes[p] for p in fused) != total:
                problem = f"tensor {source} of {self._path} has {total} rows"
                raise CorruptFileError(
                    message("open_model", problem, expected=" + ".join(str(sizes[p]) for p in fused))
                )
            first, count = sum(sizes[p] for p in fused[: fused.index(part)]), sizes[part]
        turned = self._rule.neighbours_rotate and part in ("q_proj", "k_proj")
        if not turned:
            return np.arange(first, first + count) if fused else None
        if count % c.head_width or c.head_width % 2:
            problem = f"tensor {source} of {self._path} has {count} rows"
            raise CorruptFileError(message("open_model", problem, expected=f"a multiple of {c.head_width}"))
        return rows_of_pairs(first, count, c.head_width)
