"""Ready-made models."""

from polyhal.models.batch_generation import generate_batch
from polyhal.models.bert import Bert, BertClassifier, BertConfig, from_bert_state
from polyhal.models.cnn import CNN
from polyhal.models.diffusion import DDPM
from polyhal.models.generation import Sampling, generate, stream
from polyhal.models.gpt import GPT, from_gpt2_state
from polyhal.models.gpt_config import GPTConfig
from polyhal.models.llama import Llama, from_llama_state
from polyhal.models.llama2c import load_llama2c
from polyhal.models.llama_config import LlamaConfig
from polyhal.models.mlp import MLP
from polyhal.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50
from polyhal.models.rope_scaling import RopeScaling
from polyhal.models.unet import UNet, from_diffusers_state

__all__ = [
    "CNN",
    "DDPM",
    "GPT",
    "MLP",
    "BasicBlock",
    "Bert",
    "BertClassifier",
    "BertConfig",
    "Bottleneck",
    "GPTConfig",
    "Llama",
    "LlamaConfig",
    "ResNet",
    "RopeScaling",
    "Sampling",
    "UNet",
    "from_bert_state",
    "from_diffusers_state",
    "from_gpt2_state",
    "from_llama_state",
    "generate",
    "generate_batch",
    "load_llama2c",
    "resnet18",
    "resnet34",
    "resnet50",
    "stream",
]
