"""Generation of text: requests that share a batch, and how their tokens are sampled."""

from polyhal.generation.constraint import ConstraintError, ConstraintState, TokenConstraint
from polyhal.generation.draft import DraftProposer
from polyhal.generation.engine import WORTH_CAPTURING, GenerationEngine
from polyhal.generation.logprobs import MOST_ALTERNATIVES, TokenLogprob
from polyhal.generation.model import GeneratingModel, evaluating
from polyhal.generation.prompts import PromptReader
from polyhal.generation.proposals import PromptLookup, Proposer
from polyhal.generation.request import GenerationRequest, TokenStream
from polyhal.generation.sampling import SamplingParameters
from polyhal.generation.uncached import tokens_without_cache

__all__ = [
    "MOST_ALTERNATIVES",
    "WORTH_CAPTURING",
    "ConstraintError",
    "ConstraintState",
    "DraftProposer",
    "GeneratingModel",
    "GenerationEngine",
    "GenerationRequest",
    "PromptLookup",
    "PromptReader",
    "Proposer",
    "SamplingParameters",
    "TokenConstraint",
    "TokenLogprob",
    "TokenStream",
    "evaluating",
    "tokens_without_cache",
]
