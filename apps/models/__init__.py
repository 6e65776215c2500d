"""Ready-made models."""

from polyhal.models.architectures import ARCHITECTURES
from polyhal.models.batch_generation import generate_batch
from polyhal.models.bert import Bert, BertClassifier, BertConfig, from_bert_state
from polyhal.models.checkpoint_names import Stored, checkpoint_names, find_name, from_checkpoint
from polyhal.models.cnn import CNN
from polyhal.models.decoder import Decoder
from polyhal.models.decoder_config import DecoderConfig, ExpertConfig, LatentConfig
from polyhal.models.decoder_parts import Parts
from polyhal.models.diffusion import DDPM
from polyhal.models.generation import Sampling, generate, stream
from polyhal.models.gpt import GPT, from_gpt2_state
from polyhal.models.gpt_config import GPTConfig
from polyhal.models.llama2c import load_llama2c
from polyhal.models.mlp import MLP
from polyhal.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50
from polyhal.models.rope_scaling import RopeScaling
from polyhal.models.unet import UNet, from_diffusers_state

__all__ = [
    "ARCHITECTURES",
    "CNN",
    "DDPM",
    "GPT",
    "MLP",
    "BasicBlock",
    "Bert",
    "BertClassifier",
    "BertConfig",
    "Bottleneck",
    "Decoder",
    "DecoderConfig",
    "ExpertConfig",
    "GPTConfig",
    "LatentConfig",
    "Parts",
    "ResNet",
    "RopeScaling",
    "Sampling",
    "Stored",
    "UNet",
    "checkpoint_names",
    "find_name",
    "from_bert_state",
    "from_checkpoint",
    "from_diffusers_state",
    "from_gpt2_state",
    "generate",
    "generate_batch",
    "load_llama2c",
    "resnet18",
    "resnet34",
    "resnet50",
    "stream",
]
