"""Write a page that continues a text with a language model of yours, in a browser without Python.

The model is a folder of Hugging Face's form, or a GGUF file, whose tokenizer is a byte pair encoding. The page tokenizes the
text, and streams the answer token by token with a cache of keys and values.

python examples/export_language_model.py ~/models/model.gguf page/
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import polyhal as ph
import polyhal.llm
from polyhal import export


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder of Hugging Face's form, or a GGUF file")
    parser.add_argument("path", type=Path, nargs="?", default=Path("page"), help="a folder, or a file .html")
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--context", type=int, default=512, help="tokens of prompt and answer")
    parser.add_argument("--prompt", default="Once upon a time")
    args = parser.parse_args()
    loaded = polyhal.llm.load(args.model, args.device, context=args.context)
    model, tokenizer = loaded.model.eval(), loaded.tokenizer
    cache = model.make_cache(1)

    @ph.jit
    def decode(token, position):
        cache.lengths.copy_(position)
        return model(token, cache)[0, -1]

    with ph.no_grad():
        for position in range(3):
            token, place = np.array([[0]], np.int32), np.array([position], np.int32)
            decode(ph.tensor(token, device=model.device), ph.tensor(place, device=model.device))
    data = {
        "tokenizer": json.loads(tokenizer.to_json())["tokenizer"],
        "begin": [] if tokenizer.bos_id is None else [tokenizer.bos_id],
        "ends": sorted(loaded.stop_ids),
        "context": min(cache.capacity, loaded.context),
        "prompt": args.prompt,
    }
    written = export.webgpu(
        decode,
        args.path,
        outputs=["logits"],
        title=loaded.files.name,
        page=(Path(__file__).parent / "pages" / "language_model.js").read_text(encoding="utf-8"),
        data=data,
    )
    print(f"{loaded.files.parameters:,} parameters; wrote {written}")


if __name__ == "__main__":
    main()
