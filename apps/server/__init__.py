"""A server of language models with OpenAI's HTTP interface."""

from polyhal.server.app import create_app
from polyhal.server.batches import BatchGenerator, ServedLanguageModel
from polyhal.server.interfaces import GeneratedTokens, ServedModel, TextGenerator
from polyhal.server.limits import ServerLimits
from polyhal.server.run import listen, run_app

__all__ = [
    "BatchGenerator",
    "GeneratedTokens",
    "ServedLanguageModel",
    "ServedModel",
    "ServerLimits",
    "TextGenerator",
    "create_app",
    "listen",
    "run_app",
]
