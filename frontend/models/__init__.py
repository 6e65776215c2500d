"""Ready-made models."""

from polyhal.models.cnn import CNN
from polyhal.models.generation import Sampling, generate, stream
from polyhal.models.gpt import GPT, GPTConfig, from_gpt2_state
from polyhal.models.mlp import MLP

__all__ = ["CNN", "GPT", "MLP", "GPTConfig", "Sampling", "from_gpt2_state", "generate", "stream"]
