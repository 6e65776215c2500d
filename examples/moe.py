"""Train a mixture of experts: a router sends each input to the best two of eight experts.

The task consists of eight functions, selected by the region of the input. Without a balance loss, the router soon uses only a
few experts; a loss on the experts' load (Shazeer et al., arXiv:1701.06538; Fedus et al., arXiv:2101.03961) keeps all of them in
use. Every expert has a fixed capacity, so all shapes are static and the step can be captured; inputs beyond the capacity are
dropped by that expert.

python examples/moe.py
"""

import argparse

import numpy as np

import polyhal as ph
from polyhal import nn, optim
from polyhal.nn import functional as F

EXPERTS, TOP, INPUTS, WIDTH = 8, 2, 16, 32


class MoE(nn.Module):
    """Model from inputs (N, d) to outputs (N, d), the loss of an uneven load, and the fraction of inputs per expert."""

    def __init__(self, slack: float = 2.0) -> None:
        super().__init__()
        self.router = nn.Linear(INPUTS, EXPERTS, bias=False)
        self.enter = nn.Parameter(ph.randn(EXPERTS, INPUTS, WIDTH) / INPUTS**0.5)
        self.leave = nn.Parameter(ph.randn(EXPERTS, WIDTH, INPUTS) / WIDTH**0.5)
        self.slack = slack

    def forward(self, x):
        places = int(self.slack * TOP * len(x) / EXPERTS)
        probability = self.router(x).softmax(dim=-1)
        weight, expert = probability.topk(TOP, dim=-1)
        weight, expert = (weight / weight.sum(dim=-1, keepdim=True)).flatten(), expert.flatten()  # (N * TOP,)

        chosen = F.one_hot(expert, EXPERTS)
        place = (chosen.cumsum(dim=0) * chosen).sum(dim=-1) - 1  # index among the expert's inputs
        fits = place < places
        slot = ph.where(fits, expert * places + place, EXPERTS * places)  # the last slot receives dropped inputs

        sent = x.repeat_interleave(TOP, dim=0)
        slots = ph.zeros(EXPERTS * places + 1, INPUTS, device=x.device).index_copy(0, slot, sent)
        hidden = F.gelu(slots[:-1].reshape(EXPERTS, places, INPUTS) @ self.enter)
        answers = F.pad((hidden @ self.leave).flatten(0, 1), (0, 0, 0, 1))  # zeros for the last slot
        out = (answers[slot] * weight[:, None]).reshape(len(x), TOP, INPUTS).sum(dim=1)

        share = chosen.to(x.dtype).mean(dim=0)
        return out, EXPERTS * (share * probability.mean(dim=0)).sum(), share


def train(device: ph.Device, steps: int, balance: float) -> None:
    """Train with a weight on the balance of load, and report the error and the load."""
    ph.manual_seed(0)
    centers = 2 * ph.randn(EXPERTS, INPUTS, device=device)
    maps = ph.randn(EXPERTS, INPUTS, INPUTS, device=device) / INPUTS**0.5

    def draw(count: int):
        kind = ph.randint(0, EXPERTS, (count,), device=device)
        noise = ph.randn(count, INPUTS, device=device)
        return centers[kind] + noise, (noise[:, None] @ maps[kind]).squeeze(1)

    model = MoE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @ph.jit
    def step():
        x, y = draw(128)
        out, uneven, _ = model(x)
        loss = F.mse_loss(out, y) + balance * uneven
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def report(when: str) -> None:
        with ph.no_grad():
            x, y = draw(1024)
            out, _, share = model(x)
            error = ((out - y).square().mean() / y.var()).item()
        load = " ".join(f"{s:4.0%}" for s in np.sort(share.numpy())[::-1])
        print(f"balance {balance}, {when:6} training: error {error:.3f} of the variance; load {load}")

    report("before")
    for _ in range(steps):
        step()
    report("after")


def main() -> None:
    """Train without and with the loss of an uneven load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    device = ph.Device(args.device)
    print(f"{TOP} of {EXPERTS} experts per input; {device}")
    for balance in (0.0, 0.1):
        train(device, args.steps, balance)


if __name__ == "__main__":
    main()
