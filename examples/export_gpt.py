"""Write a page that continues your text with a small GPT, and trains it on any text, in a browser without Python.

The model predicts the next character of this project's documentation. It is trained here for a moment and exported with two
steps that share its weights: one character with a cache of the keys and values before it, and a training step with Adam.

python examples/export_gpt.py gpt.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import polyhal as ph
from polyhal import export, optim
from polyhal.models import GPT, GPTConfig
from polyhal.nn import functional as F
from polyhal.text import CharTokenizer

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
WINDOW, BATCH = 64, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", default=Path("gpt.html"), help="a file .html, or a folder")
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.stat().st_size < 20_000)
    text = "".join(c for c in text if c.isascii())
    tokenizer = CharTokenizer.train(text)
    tokens = np.array(tokenizer.encode(text), dtype=np.int32)
    config = GPTConfig(vocab_size=tokenizer.vocab_size, block_size=WINDOW, n_layer=3, n_head=4, n_embd=96)
    model = GPT(config, device=device)
    optimizer = optim.AdamW(model.parameters(), lr=2e-3)

    @ph.jit
    def train(window, following):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(window).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        return loss

    cache = model.make_cache(1)

    @ph.jit
    def decode(token, position):
        cache.lengths.copy_(position)
        return model(token, cache)[0, -1]

    generator = np.random.default_rng(0)
    for step in range(1, max(args.steps, 3) + 1):
        starts = generator.integers(0, len(tokens) - WINDOW - 1, BATCH)
        rows = np.stack([tokens[s : s + WINDOW + 1] for s in starts])
        loss = train(ph.tensor(rows[:, :-1].copy(), device=device), ph.tensor(rows[:, 1:].copy(), device=device))
        if step % 250 == 0 or step == args.steps:
            print(f"step {step:4d}  {loss.item() / np.log(2):.2f} bits per character")
    model.eval()
    with ph.no_grad():
        for position in range(3):
            number = np.array([position], np.int32)
            decode(ph.tensor(tokens[None, :1], device=device), ph.tensor(number, device=device))
    print(f"{model.count_parameters()} parameters on {device}")
    written = export.webgpu(
        {"train": train, "decode": decode},
        args.path,
        inputs={"train": ["window", "following"], "decode": ["token", "position"]},
        outputs={"train": ["loss"], "decode": ["logits"]},
        title="A small GPT",
        page=(Path(__file__).parent / "pages" / "gpt.js").read_text(encoding="utf-8"),
        data={"vocabulary": tokenizer.vocabulary, "window": WINDOW, "batch": BATCH, "prompt": "A captured step "},
    )
    print(f"wrote {written}: open it in a browser with WebGPU")


if __name__ == "__main__":
    main()
