"""A server of language models with OpenAI's HTTP interface."""

from polyhal.server.app import create_app
from polyhal.server.interfaces import GeneratedTokens, SamplingOptions, ServedModel, TextGenerator
from polyhal.server.limits import ServerLimits

__all__ = ["GeneratedTokens", "SamplingOptions", "ServedModel", "ServerLimits", "TextGenerator", "create_app"]
