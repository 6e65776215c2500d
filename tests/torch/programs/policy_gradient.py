"""A policy that keeps a pole upright, by REINFORCE: a small network evaluated once for each move."""

from __future__ import annotations

import math
import random

import torch
from torch import nn, optim
from torch.distributions import Categorical

_MOVES = 12
"""The longest game."""


class Pole:
    """A cart with a pole, pushed left or right: Barto, Sutton and Anderson 1983, by Euler's method."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def reset(self) -> list[float]:
        """Position, speed, angle and its speed, near 0."""
        self.state = [self._random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, right: bool) -> tuple[list[float], bool]:
        """Return the state after a push of 10 N for 20 ms, and whether the pole has fallen."""
        x, v, angle, turn = self.state
        sine, cosine = math.sin(angle), math.cos(angle)
        push = ((10.0 if right else -10.0) + 0.05 * turn**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        speed_up = push - 0.05 * bend * cosine / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * speed_up, angle + 0.02 * turn, turn + 0.02 * bend]
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


def losses(device: str, steps: int) -> list[float]:
    """Return the loss of each game. Moves are drawn on the CPU."""
    torch.manual_seed(1)
    policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2), nn.Softmax(dim=1)).to(device)
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    pole, draws = Pole(1), torch.Generator().manual_seed(2)
    found = []
    for _ in range(steps):
        state, fallen = pole.reset(), False
        logarithms = []
        while not fallen and len(logarithms) < _MOVES:
            chances = Categorical(policy(torch.tensor(state).unsqueeze(0).to(device)))
            move = torch.multinomial(chances.probs.detach().cpu(), 1, generator=draws)[0].to(device)
            logarithms.append(chances.log_prob(move))
            state, fallen = pole.step(bool(move.item()))
        returns = [0.0]
        for _ in logarithms:
            returns.append(1.0 + 0.99 * returns[-1])
        rewards = torch.tensor(returns[:0:-1]).to(device)
        rewards = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        optimizer.zero_grad()
        loss = (-torch.cat(logarithms) * rewards).sum()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
