"""Generation of text: requests that share a batch, and how their tokens are sampled."""

from polyhal.generation.engine import GeneratingModel, GenerationEngine, evaluating
from polyhal.generation.request import GenerationRequest, TokenStream
from polyhal.generation.sampling import SamplingParameters
from polyhal.generation.uncached import tokens_without_cache

__all__ = [
    "GeneratingModel",
    "GenerationEngine",
    "GenerationRequest",
    "SamplingParameters",
    "TokenStream",
    "evaluating",
    "tokens_without_cache",
]
