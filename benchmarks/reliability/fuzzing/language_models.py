"""Files of language models: GGUF, folders of Hugging Face's form, and tokenizers of both."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.random_language_models import Size, write_file
from benchmarks.reliability.fuzzing.case import FileFormat, HostileInput
from benchmarks.reliability.fuzzing.mutation import damaged_bytes, damaged_json
from polyhal.hal.errors import CorruptFileError
from polyhal.llm import load

_GGUF, _CONFIG, _TOKENIZER, _WEIGHTS = "model.gguf", "config.json", "tokenizer.json", "model.safetensors"
_SETTINGS, _GENERATION = "tokenizer_config.json", "generation_config.json"
_SMALL = Size(32, 1, 32, 2, 1, 264, 32)
_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
_TEMPLATES = (
    "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{% if %}",
    "{{ messages.__class__.__mro__ }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 9**9**9 }}",
    "{{ [0] * 10**10 }}",
    "{{ raise_exception('no') }}",
    "{% include '/etc/passwd' %}",
    "{{ messages[99].content }}",
    "{{ '%0999999999d' % 1 }}",
    "{% set x = ['x' * 1000] %}{% for i in range(60) %}{% set x = x + x %}{{ x | join }}{% endfor %}",
    "{{ lipsum(n=99999) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{" * 5000,
    "{{ (" * 400 + ")" * 400 + "}}",
    "",
)
_MESSAGES = [{"role": "user", "content": "a"}]


def formats() -> list[FileFormat]:
    """Return all formats of this file."""
    return [
        FileFormat("GGUF", _hostile_gguf, _read(_GGUF), HostileInput({_GGUF: _gguf()}), 96 << 20),
        FileFormat("folder of a language model", _hostile_folder, _read("."), HostileInput(_folder()), 96 << 20),
    ]


def _read(name: str) -> Callable[[Path], Any]:
    """Return a function that loads a model, and uses its tokenizer and its template."""

    def read(folder: Path) -> Any:
        try:
            model = load(folder / name, "numpy", context=8)
            ids = model.ids("a")
        except FileNotFoundError as error:
            raise CorruptFileError(str(error)) from error
        text = model.template().render(_MESSAGES) if model.files.chat_templates else ""
        return ids, text, model.files.parameters, list(model.stream_ids([1], 1, temperature=0))

    return read


@cache
def _gguf() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _GGUF
        write_file(path, _SMALL, "Q8_0")
        return path.read_bytes()


def _hostile_gguf(random: Random) -> HostileInput:
    """Return a file with damage in its metadata and descriptions of tensors, or anywhere."""
    data = _gguf()
    if random.random() < 0.2:
        return HostileInput({_GGUF: damaged_bytes(random, data)})
    end = data.index(b"output.weight") + 64
    return HostileInput({_GGUF: damaged_bytes(random, data[:end]) + data[end:]})


@cache
def _folder() -> Mapping[str, bytes]:
    width, hidden, vocabulary = 8, 16, 6
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": vocabulary,
        "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "eos_token_id": 2,
    }
    layer = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (4, width),
        "self_attn.v_proj": (4, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (hidden, width),
        "mlp.up_proj": (hidden, width),
        "mlp.down_proj": (width, hidden),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    words = {word: i for i, word in enumerate(("<unk>", "a", "</s>", "b", "ab", "c"))}
    special = {"id": 2, "content": "</s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**special, "normalized": False}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": words, "merges": ["a b"], "unk_token": "<unk>", "dropout": None},
    }
    settings = {"eos_token": "</s>", "add_bos_token": False, "chat_template": _TEMPLATE}
    generation = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "eos_token_id": [2], "do_sample": True}
    trees = {_CONFIG: config, _TOKENIZER: tokenizer, _SETTINGS: settings, _GENERATION: generation}
    texts = {name: json.dumps(tree).encode() for name, tree in trees.items()}
    return {**texts, _WEIGHTS: bytes(safetensors.numpy.save(weights))}


def _hostile_folder(random: Random) -> HostileInput:
    """Return a folder in which one file is damaged or missing, or whose template is hostile."""
    files = dict(_folder())
    kind = random.randrange(12)
    name = random.choice(sorted(files))
    if kind == 0:
        del files[name]
    elif kind <= 2:
        settings = {**json.loads(files[_SETTINGS]), "chat_template": random.choice(_TEMPLATES)}
        files[_SETTINGS] = json.dumps(settings).encode()
    elif name == _WEIGHTS:
        files[name] = damaged_bytes(random, files[name])
    else:
        files[name] = damaged_json(random, json.loads(files[name]))
    return HostileInput(files)
