"""Constraints of answers and tools, in the forms of OpenAI's interface and of common extensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.server.errors import RequestError
from polyhal.server.fields import Fields, shown

_MOST_TOOLS = 128
_GUIDED = {"guided_json": "json_schema", "guided_regex": "regex", "guided_grammar": "lark", "guided_choice": "choices"}
"""Kinds of constraints by the names of fields that other servers have."""
_OBJECT = {"type": "object"}


def called_tools(fields: Fields) -> list[dict[str, Any]]:
    """Return the tools that the model may call. A choice of one tool leaves the others out."""
    tools = fields.body.get("tools", [])
    if not isinstance(tools, list) or len(tools) > _MOST_TOOLS:
        fields.refuse("tools", f"a list of at most {_MOST_TOOLS} tools")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        parameters = function.get("parameters") if isinstance(function, dict) else None
        is_sound = isinstance(function, dict) and isinstance(function.get("name"), str)
        if not is_sound or not isinstance(parameters, (dict, type(None))):
            expected = 'objects {"type": "function", "function": {"name": ..., "parameters": ...}}'
            raise RequestError(f"tools has {shown(tool)}", expected=expected, param="tools")
    choice = fields.body.get("tool_choice", "auto")
    if choice == "none":
        return []
    if choice == "auto" or (choice == "required" and tools):
        return tools
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    found = [tool for tool in tools if tool["function"]["name"] == name]
    if not found:
        fields.refuse(
            "tool_choice", '"auto", "none", "required", or {"type": "function", "function": {"name": ...}} of a tool'
        )
    return found


def read_constraint(fields: Fields, tools: Sequence[Any]) -> tuple[str, Any] | None:
    """Return the kind and the value of the constraint that a request states. Raises RequestError for several."""
    stated = [(name, kind, fields.body[name]) for name, kind in _GUIDED.items() if name in fields]
    form = fields.mapping("response_format")
    kind = form.get("type")
    if kind == "json_object":
        stated.append(("response_format", "json_schema", _OBJECT))
    elif kind == "json_schema":
        inner = form.get("json_schema")
        schema = inner.get("schema", _OBJECT) if isinstance(inner, dict) else None
        stated.append(("response_format", "json_schema", schema))
    elif form and kind != "text":
        expected = "type text, json_object, or json_schema with json_schema.schema"
        fields.refuse("response_format", expected)
    if tools and fields.body.get("tool_choice", "auto") != "auto":
        stated.append(("tool_choice", "tools", tools))
    if len(stated) > 1:
        names = " and ".join(name for name, _, _ in stated)
        raise RequestError(f"{names} both constrain the answer", expected="one of them", param=stated[1][0])
    for name, kind, value in stated:
        _check(fields, name, kind, value)
        return kind, value
    return None


def _check(fields: Fields, name: str, kind: str, value: Any) -> None:
    """Raise RequestError for a value of a wrong type."""
    if kind == "json_schema" and not isinstance(value, dict):
        fields.refuse(name, "a JSON schema, which is an object")
    if kind in ("regex", "lark") and not isinstance(value, str):
        fields.refuse(name, "a string")
    if kind == "choices" and not (isinstance(value, list) and value and all(isinstance(x, str) and x for x in value)):
        fields.refuse(name, "a list of strings, none of them empty")
