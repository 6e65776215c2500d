"""Generation of text: requests that share a batch, and how their tokens are sampled."""

from polyhal.generation.engine import WORTH_CAPTURING, GeneratingModel, GenerationEngine, evaluating
from polyhal.generation.logprobs import MOST_ALTERNATIVES, TokenLogprob
from polyhal.generation.request import GenerationRequest, TokenStream
from polyhal.generation.sampling import SamplingParameters
from polyhal.generation.uncached import tokens_without_cache

__all__ = [
    "MOST_ALTERNATIVES",
    "WORTH_CAPTURING",
    "GeneratingModel",
    "GenerationEngine",
    "GenerationRequest",
    "SamplingParameters",
    "TokenLogprob",
    "TokenStream",
    "evaluating",
    "tokens_without_cache",
]
