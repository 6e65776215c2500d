"""Language models of others: their files, tokenizers and chat templates, on any device."""

from polyhal.llm.chat_template import ChatTemplate
from polyhal.llm.template_errors import ChatTemplateError, TemplateLimitError

__all__ = ["ChatTemplate", "ChatTemplateError", "TemplateLimitError"]
