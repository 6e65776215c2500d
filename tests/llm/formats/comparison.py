"""Logits of files in Polyhal, of the same weights as floats of the package `gguf`, and in llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np

import polyhal as ph
from polyhal.llm import load, quantize
from polyhal.llm.files import GgufFile
from polyhal.models import Decoder, DecoderConfig, from_checkpoint
from tests.llm.formats.cases import checkpoint_of, settings_of, token_ids, write_folder

RESULTS = Path(__file__).with_name("results.json")
LIMIT = 1e-5
"""Largest difference of logits, relative to the largest logit: sums of 256 products in float32, in a few layers."""
FOLDER = "folder"


def results() -> dict[str, Any]:
    """Return the committed results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def logits_of(path: Path, ids: Sequence[int], device: str = "numpy") -> np.ndarray:
    """Return the logits (tokens, words) of a file or folder."""
    model = load(path, device, ph.float32).model
    with ph.no_grad():
        return model(ph.tensor([list(ids)], device=device)).numpy()[0]


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest logit."""
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def with_floats(source: Path, target: Path) -> Path:
    """Write a file with the weights of another one as the package `gguf` dequantises them."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            items = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], items)
    for t in reader.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type)
        writer.add_tensor(t.name, values.reshape(tuple(int(n) for n in reversed(t.shape))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def llama_cpp_logits(path: Path, ids: Sequence[int]) -> np.ndarray | None:
    """Return the logits of llama.cpp; None if it does not read the file."""
    import llama_cpp

    floats = int(gguf.GGMLQuantizationType.F32)
    metadata = GgufFile(path).metadata
    scaling = f"{metadata['general.architecture']}.rope.scaling"
    # Of some architectures it reads these from its options only, and -1 stands for the file's or the usual value.
    own = {f"yarn_{k}": metadata.get(f"{scaling}.yarn_{k}", -1.0) for k in ("beta_fast", "beta_slow", "attn_factor")}
    try:
        model = llama_cpp.Llama(
            str(path), n_ctx=512, logits_all=True, n_threads=1, verbose=False, type_k=floats, type_v=floats, **own
        )
    except ValueError:
        return None
    model.eval(list(ids))
    found = np.array(model.scores[: len(ids)])
    model.close()
    return found


class Case:
    """A case in a folder, which is written on construction."""

    def __init__(self, name: str, place: Path) -> None:
        settings = settings_of(name)
        tensors = checkpoint_of(settings)
        self.place, self.ids = place, token_ids()
        self.folder = write_folder(place / "model", settings, tensors)
        model = Decoder(DecoderConfig.from_json(settings), "numpy")
        model.load_state_dict(from_checkpoint(settings, tensors))
        with ph.no_grad():
            self.floats = model.eval()(ph.tensor([self.ids], device="numpy")).numpy()[0]

    def row(self, kind: str, device: str = "numpy", peer: bool = False) -> dict[str, Any]:
        """Return the differences of a type; `equal` counts the tokens after which llama.cpp has the same likeliest one."""
        if kind == FOLDER:
            return {"difference": difference(logits_of(self.folder, self.ids, device), self.floats)}
        target = self.place / f"{kind}.gguf"
        quantize(self.folder, target, kind)
        got = logits_of(target, self.ids, device)
        expected = self.floats
        if kind != "f32":
            expected = logits_of(with_floats(target, self.place / "floats.gguf"), self.ids)
        row: dict[str, Any] = {"difference": difference(got, expected)}
        if peer:
            theirs = llama_cpp_logits(target, self.ids)
            row["equal"] = None if theirs is None else int((theirs.argmax(-1) == got.argmax(-1)).sum())
            row["peer"] = None if theirs is None else difference(theirs, got)
        target.unlink()
        return row


def perplexity(logits: np.ndarray, ids: Sequence[int]) -> float:
    """Return the perplexity of the tokens after the first one."""
    x = logits[:-1].astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    likelihood = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return float(np.exp(-likelihood[np.arange(len(x)), list(ids)[1:]].mean()))
