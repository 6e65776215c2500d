"""Train an LSTM to predict the next character of this project's documentation, and generate text.

The text is read as 32 parallel streams. Each step continues at the end of the previous one: the state is carried over,
and gradients are cut between steps (truncated backpropagation through time).

python examples/char_lstm.py
"""

import argparse
from pathlib import Path

import numpy as np

import polyhal as ph
from polyhal import nn, optim
from polyhal.text import CharTokenizer

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
STREAMS, LENGTH = 32, 32


class CharLSTM(nn.Module):
    """Model from tokens (N, L) and a state to logits (N, L, vocabulary) and the next state."""

    def __init__(self, vocabulary: int, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, state=None):
        hidden, state = self.lstm(self.embedding(tokens), state)
        return self.head(hidden), state


def sample(model: CharLSTM, tokenizer: CharTokenizer, prompt: str, length: int, device: ph.Device) -> str:
    """Continue the prompt, one character at a time, each drawn from the model's distribution at temperature 0.6."""
    tokens = tokenizer.encode(prompt)
    state, current = None, ph.tensor([tokens], device=device)
    with ph.no_grad():
        for _ in range(length):
            logits, state = model(current, state)
            current = ph.multinomial((logits[0, -1:] / 0.6).softmax(-1), 1)
            tokens.append(current.item())
    return tokenizer.decode(tokens)


def main() -> None:
    """Train, report bits per character of unseen text, and generate some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.stat().st_size < 20_000)
    tokenizer = CharTokenizer.train(text)
    tokens = np.array(tokenizer.encode(text), dtype=np.int32)
    split = len(tokens) * 9 // 10
    counts = np.bincount(tokens, minlength=tokenizer.vocab_size)
    frequency = counts[counts > 0] / len(tokens)
    print(f"{len(text)} characters, {len(frequency)} different ones; {device}")
    print(
        f"with only the frequency of each character: {-(frequency * np.log2(frequency)).sum():.2f} bits per character"
    )

    streams = tokens[: split // STREAMS * STREAMS].reshape(STREAMS, -1)
    unseen = ph.tensor(tokens[split : split + 32 * 128 + 1], device=device)
    model = CharLSTM(tokenizer.vocab_size).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=4e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=args.steps)

    @ph.jit
    def step(inputs, targets, state):
        logits, state = model(inputs, state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss, tuple(s.detach() for s in state)

    def bits() -> float:
        with ph.no_grad():
            logits, _ = model(unseen[:-1].reshape(32, 128))
            return nn.functional.cross_entropy(logits.flatten(0, 1), unseen[1:]).item() / np.log(2)

    print(f"before training: {bits():.2f} bits per character of unseen text")
    fresh = (ph.zeros(1, STREAMS, 128, device=device), ph.zeros(1, STREAMS, 128, device=device))
    positions = range(0, streams.shape[1] - LENGTH - 1, LENGTH)
    for i in range(args.steps):
        at = positions[i % len(positions)]
        if at == 0:
            state = fresh
        window = ph.tensor(streams[:, at : at + LENGTH + 1], device=device)
        _, state = step(window[:, :-1], window[:, 1:], state)
        if i % 200 == 199:
            print(f"step {i + 1:4d}  {bits():.2f} bits")
    print(f"after training: {bits():.2f} bits per character of unseen text")
    print(sample(model, tokenizer, "A kernel ", 300, device))


if __name__ == "__main__":
    main()
