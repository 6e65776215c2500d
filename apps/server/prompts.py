"""Prompts of requests, as tokens."""

from __future__ import annotations

import json
from typing import Any

from polyhal.hal.errors import PolyhalError
from polyhal.server.constraints import called_tools
from polyhal.server.errors import RequestError
from polyhal.server.fields import Fields, shown
from polyhal.server.interfaces import ServedModel

_MOST_MESSAGES = 4096


def chat_prompt(fields: Fields, model: ServedModel) -> list[int]:
    """Return the tokens of a conversation. Raises RequestError, also for errors of the model's chat template."""
    messages = _messages(fields)
    tools = called_tools(fields) or None
    try:
        return model.chat_ids(messages, tools)
    except (PolyhalError, ValueError, TypeError, RecursionError) as error:
        problem = f"the chat template refuses the conversation: {str(error)[:500]}"
        raise RequestError(problem, param="messages", code="chat_template") from error


def plain_prompts(fields: Fields, model: ServedModel) -> list[list[int]]:
    """Return the tokens of each prompt: a string, a list of strings, token ids, or a list of lists of token ids."""
    prompt = fields.body.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and type(prompt[0]) is int):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        fields.refuse("prompt", "a string, a list of strings, or lists of token ids")
    return [_plain_ids(fields, model, p) for p in prompt]


def _plain_ids(fields: Fields, model: ServedModel, prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return model.ids(prompt)
    most = model.tokenizer.vocab_size - 1
    if not isinstance(prompt, list) or not all(type(i) is int and 0 <= i <= most for i in prompt):
        fields.refuse("prompt", f"strings, or lists of token ids from 0 to {most}")
    return prompt


def check_length(ids: list[int], limit: int, param: str) -> None:
    """Raise RequestError for an empty prompt, or one that is too long."""
    if not ids:
        raise RequestError(f"{param} has no tokens", expected="at least one token", param=param)
    if len(ids) > limit:
        problem, expected = f"{param} has {len(ids)} tokens", f"at most {limit}"
        fix = "shorten it, or start the server with a larger --context or --max-prompt"
        raise RequestError(problem, expected=expected, fix=fix, param=param, code="context_length_exceeded")


def _messages(fields: Fields) -> list[dict[str, Any]]:
    messages = fields.body.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= _MOST_MESSAGES:
        fields.refuse("messages", f"a list of 1 to {_MOST_MESSAGES} messages")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Any, place: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        problem = f"{place} is {shown(message)}"
        raise RequestError(problem, expected="an object with a role and content", param=place)
    found = {**message, "content": _content(message.get("content"), f"{place}.content")}
    if message.get("tool_calls"):
        found["tool_calls"] = _tool_calls(message["tool_calls"], f"{place}.tool_calls")
    elif found["content"] is None:
        raise RequestError(f"{place}.content is null", expected="text, or tool_calls", param=f"{place}.content")
    return found


def _content(content: Any, place: str) -> str | None:
    """Return content as text: a string, or the texts of a list of parts."""
    if content is None or isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            expected = 'a string, or parts {"type": "text", "text": ...}: this server reads text only'
            raise RequestError(f"{place} has {shown(part)}", expected=expected, param=place)
    return "".join(part["text"] for part in parts)


def _tool_calls(calls: Any, place: str) -> list[dict[str, Any]]:
    """Return calls of tools with their arguments as objects, as chat templates expect them."""
    found = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            expected = 'objects {"type": "function", "function": {"name": ..., "arguments": ...}}'
            raise RequestError(f"{place} has {shown(call)}", expected=expected, param=place)
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments else {}
            except (ValueError, RecursionError):
                problem = f"{place} has arguments {shown(arguments)}"
                raise RequestError(problem, expected="JSON text", param=place) from None
        found.append({**call, "function": {**function, "arguments": arguments}})
    return found
