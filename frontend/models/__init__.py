"""Ready-made models."""

from polyhal.models.cnn import CNN
from polyhal.models.diffusion import DDPM
from polyhal.models.generation import Sampling, generate, stream
from polyhal.models.gpt import GPT, GPTConfig, from_gpt2_state
from polyhal.models.mlp import MLP
from polyhal.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50
from polyhal.models.unet import UNet, from_diffusers_state

__all__ = [
    "CNN",
    "DDPM",
    "GPT",
    "MLP",
    "BasicBlock",
    "Bottleneck",
    "GPTConfig",
    "ResNet",
    "Sampling",
    "UNet",
    "from_diffusers_state",
    "from_gpt2_state",
    "generate",
    "resnet18",
    "resnet34",
    "resnet50",
    "stream",
]
