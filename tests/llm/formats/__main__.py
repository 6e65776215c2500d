"""Compute differences of all architectures and types, and write results.json and the page: `python -m tests.llm.formats`.

It needs `llama-cpp-python`, and downloads nothing. Names of cases as arguments compute only these.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.llm import load, open_model, quantize
from polyhal.llm.mixtures import MIXTURES
from tests.llm.formats.cases import TYPES
from tests.llm.formats.comparison import (
    FOLDER,
    LIMIT,
    RESULTS,
    Case,
    llama_cpp_logits,
    logits_of,
    perplexity,
    results,
)
from tests.llm.formats.page import PAGE, page
from tests.llm.small_models import STORIES, stories
from tests.models.architectures.cases import CASES

_TEXTS, _TOKENS = 4, 256


def trained(place: Path) -> dict[str, Any]:
    """Return perplexities and numbers of greedy tokens of stories260K by type."""
    source = stories(place / "stories.gguf")
    model = load(source, "numpy")
    ids = [[1, *model.stream_ids([1], _TOKENS - 1, temperature=1.0, seed=s)] for s in range(_TEXTS)]
    ids = [x for x in ids if len(x) == _TOKENS]
    greedy = json.loads((STORIES / "greedy_ids.json").read_text(encoding="utf-8"))
    rows = {}
    for kind in MIXTURES:
        target = place / f"{kind}.gguf"
        quantize(source, target, kind)
        ours = [perplexity(logits_of(target, x), x) for x in ids]
        theirs = [perplexity(found, x) for x in ids if (found := llama_cpp_logits(target, x)) is not None]
        if not theirs:
            raise ValueError(f"llama.cpp does not read {target}")
        written = list(load(target, "numpy", ph.float32).stream_ids(greedy[:1], len(greedy) - 1, temperature=0))
        pairs = zip(written, greedy[1:], strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(written), len(greedy) - 1))
        files = open_model(target)
        mean = (float(np.exp(np.mean(np.log(x)))) for x in (ours, theirs))
        rows[kind] = {"bits": 8 * files.nbytes / files.parameters, "greedy": same, "of": len(greedy) - 1} | dict(
            zip(("ours", "theirs"), mean, strict=True)
        )
        print(kind, rows[kind], flush=True)
    return {"ids": ids, "types": rows}


def main(names: list[str]) -> int:
    """Write the results and the page; return 1 if a difference is above its limit."""
    found = results() if RESULTS.exists() else {"cases": {}}
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as place:
            case = Case(name, Path(place))
            row = {kind: case.row(kind, peer=True) for kind in (FOLDER, *TYPES)}
        found["cases"][name] = row
        print(name, max(r["difference"] for r in row.values()), [row[t]["equal"] for t in TYPES], flush=True)
    found["cases"] = {name: found["cases"][name] for name in CASES if name in found["cases"]}
    if not names:
        with tempfile.TemporaryDirectory() as place:
            found["perplexity"] = trained(Path(place))
    found |= {"gguf": metadata.version("gguf"), "llama_cpp": metadata.version("llama-cpp-python")}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(data)}" for name, data in found["cases"].items())
    others = ",\n".join(f"{json.dumps(name)}: {json.dumps(data)}" for name, data in found.items() if name != "cases")
    RESULTS.write_text(f'{{\n"cases": {{\n{lines}\n}},\n{others}\n}}\n', encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
    return int(any(r["difference"] > LIMIT for row in found["cases"].values() for r in row.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
