"""Layers, losses and containers of modules."""

from polyhal.nn import functional, init, utils
from polyhal.nn.activation import (
    ELU,
    GELU,
    Dropout,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from polyhal.nn.attention import KVCache, MultiheadAttention
from polyhal.nn.container import Flatten, Identity, ModuleDict, ModuleList, Sequential
from polyhal.nn.conv import AdaptiveAvgPool2d, AvgPool2d, Conv2d, MaxPool2d
from polyhal.nn.hooks import HookHandle
from polyhal.nn.linear import Embedding, Linear
from polyhal.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss
from polyhal.nn.module import Module
from polyhal.nn.norm import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from polyhal.nn.parameter import Parameter
from polyhal.nn.state import StateDictError
from polyhal.nn.transformer import PositionalEncoding, TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "ELU", "GELU", "AdaptiveAvgPool2d", "AvgPool2d", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "Conv2d",
    "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "GroupNorm", "HookHandle", "Identity", "KVCache", "L1Loss",
    "LayerNorm", "LeakyReLU", "Linear", "LogSoftmax", "MSELoss", "MaxPool2d", "Module", "ModuleDict", "ModuleList",
    "MultiheadAttention", "NLLLoss", "Parameter", "PositionalEncoding", "RMSNorm", "ReLU", "Sequential", "SiLU",
    "Sigmoid", "SmoothL1Loss", "Softmax", "Softplus", "StateDictError", "Tanh", "TransformerEncoder",
    "TransformerEncoderLayer", "functional", "init", "utils",
]  # fmt: skip
