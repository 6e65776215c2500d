"""Language models of others: their files, tokenizers and chat templates, on any device."""

from polyhal.llm.chat_encoder import ChatEncoder
from polyhal.llm.chat_template import ChatTemplate
from polyhal.llm.conversation import ChatSettings, Conversation
from polyhal.llm.files import ModelFiles, StoredWeight, open_model
from polyhal.llm.grammars import Grammar, GrammarCompiler
from polyhal.llm.language_model import LanguageModel, estimate, load
from polyhal.llm.memory import ModelDoesNotFitError
from polyhal.llm.merging import check_target, merge_adapter
from polyhal.llm.perplexity import Perplexity, check_windows, perplexity
from polyhal.llm.quantize import quantize
from polyhal.llm.template_errors import ChatTemplateError, TemplateLimitError
from polyhal.llm.tool_calls import ToolCall, ToolCallFilter, ToolCallForm, parse_tool_calls

__all__ = [
    "ChatEncoder",
    "ChatSettings",
    "ChatTemplate",
    "ChatTemplateError",
    "Conversation",
    "Grammar",
    "GrammarCompiler",
    "LanguageModel",
    "ModelDoesNotFitError",
    "ModelFiles",
    "Perplexity",
    "StoredWeight",
    "TemplateLimitError",
    "ToolCall",
    "ToolCallFilter",
    "ToolCallForm",
    "check_target",
    "check_windows",
    "estimate",
    "load",
    "merge_adapter",
    "open_model",
    "parse_tool_calls",
    "perplexity",
    "quantize",
]
