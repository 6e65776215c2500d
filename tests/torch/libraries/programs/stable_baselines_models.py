"""stable-baselines3: the policy of PPO with its loss."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from stable_baselines3.common.policies import ActorCriticPolicy

from tests.torch.libraries.cases import Made, trained_case


def _policy() -> Made:
    model = ActorCriticPolicy(
        gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(3), lambda _: 1e-3, net_arch=[16]
    )
    batch = {"observations": torch.randn(8, 4), "actions": torch.randint(3, (8,)), "advantages": torch.randn(8)}
    return model, batch


def _loss(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    values, log_probability, entropy = model.evaluate_actions(inputs["observations"], inputs["actions"])
    ratio = (log_probability - log_probability.detach()).exp()
    gains = torch.min(inputs["advantages"] * ratio, inputs["advantages"] * ratio.clamp(0.8, 1.2))
    return -gains.mean() + 0.5 * (values.flatten() - inputs["advantages"]).square().mean() - 0.01 * entropy.mean()


trained_case("stable-baselines3", "PPO's policy with its loss", _policy, _loss)
