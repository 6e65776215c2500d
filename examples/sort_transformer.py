"""Teach an encoder-decoder transformer to sort: "5 1 4 1 3 9" becomes "1 1 3 4 5 9".

Training feeds the sorted digits, shifted by one, to the decoder under a causal mask. Afterwards the model generates
digit by digit, always the most probable one, and only completely correct answers count.

python examples/sort_transformer.py
"""

import argparse

import numpy as np

import polyhal as ph
from polyhal import nn, optim

LENGTH, BEGIN, TOKENS, WIDTH = 8, 10, 11, 64


class Sorter(nn.Module):
    """Model from digits (N, L) and the answer so far (N, M) to logits of the next digits (N, M, 11)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.transformer = nn.Transformer(
            WIDTH,
            nhead=4,
            num_encoder_layers=1,
            num_decoder_layers=1,
            dim_feedforward=128,
            dropout=0.0,
            batch_first=True,
        )
        self.head = nn.Linear(WIDTH, TOKENS)

    def embed(self, tokens):
        return self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]

    def forward(self, digits, answer):
        mask = nn.Transformer.generate_square_subsequent_mask(answer.shape[1], device=answer.device)
        return self.head(self.transformer(self.embed(digits), self.embed(answer), tgt_mask=mask, tgt_is_causal=True))


def solve(model: Sorter, digits: ph.Tensor) -> np.ndarray:
    """Generate the answers (N, L) digit by digit."""
    answer = ph.full((len(digits), 1), BEGIN, dtype=ph.int32, device=digits.device)
    with ph.no_grad():
        for _ in range(LENGTH):
            best = model(digits, answer)[:, -1].argmax(dim=-1, keepdim=True)
            answer = ph.cat([answer, best.to(answer.dtype)], dim=1)
    return answer[:, 1:].numpy()


def main() -> None:
    """Train on random digits, and report how many unseen rows are sorted without a mistake."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    rng = np.random.default_rng(0)

    model = Sorter().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=args.steps)
    test = rng.integers(0, 10, (200, LENGTH))

    def accuracy() -> float:
        answers = solve(model, ph.tensor(test, device=device))
        return float((answers == np.sort(test)).all(axis=1).mean())

    @ph.jit
    def step(digits, shifted, answer):
        logits = model(digits, shifted)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), answer.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    print(f"{device}: {accuracy():.1%} of {len(test)} rows sorted before training")
    for i in range(args.steps):
        digits = rng.integers(0, 10, (64, LENGTH))
        answer = np.sort(digits)
        shifted = np.insert(answer[:, :-1], 0, BEGIN, axis=1)
        loss = step(*(ph.tensor(a, device=device) for a in (digits, shifted, answer)))
        if i % 100 == 99:
            print(f"step {i + 1:4d}  loss {loss.item():.4f}  sorted {accuracy():.1%}")
    print(f"{accuracy():.1%} of {len(test)} rows sorted after training")
    for digits, answer in zip(test[:3], solve(model, ph.tensor(test[:3], device=device)), strict=True):
        print(*digits, "->", *answer)


if __name__ == "__main__":
    main()
