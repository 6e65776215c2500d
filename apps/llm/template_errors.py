"""Errors of chat templates."""

from polyhal.hal.errors import PolyhalError


class ChatTemplateError(PolyhalError, ValueError):
    """A template is damaged, or rejects the messages."""


class TemplateLimitError(PolyhalError, ValueError):
    """A template takes more time or memory than a prompt can need."""
