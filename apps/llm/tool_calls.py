"""Calls of tools in answers: their form in the texts of a model, grammars that force them, and their parsing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.llm.grammars import Grammar, GrammarCompiler

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, with its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallForm:
    """How a model writes a call: a JSON object with the name and the arguments, between marks."""

    begin: str = ""
    end: str = ""
    arguments: str = "arguments"
    """Key of the arguments."""
    is_list: bool = False
    """True if calls are items of a JSON array."""

    def grammar(self, compiler: GrammarCompiler, tools: Tools) -> Grammar:
        """Return the grammar of a call of one of some tools. Raises ConstraintError for invalid parameters."""
        calls = [self._schema(tool["function"]) for tool in tools]
        schema: Any = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if self.is_list:
            schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
        if not self.begin:
            return compiler.json_schema(schema)
        options = compiler.json_options(schema)
        return compiler.lark(f"start: {json.dumps(self.begin)} call {json.dumps(self.end)}\ncall: %json {options}")

    def _schema(self, function: Mapping[str, Any]) -> dict[str, Any]:
        parameters = function.get("parameters") or {"type": "object"}
        properties = {"name": {"const": function["name"]}, self.arguments: parameters}
        return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_HERMES = ToolCallForm("<tool_call>\n", "\n</tool_call>")
_LLAMA = ToolCallForm(arguments="parameters")
_LIST = ToolCallForm(is_list=True)
_PLAIN = ToolCallForm()
_MARKED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_STARTS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>")


def tool_call_form(template: str) -> ToolCallForm:
    """Return the form of calls that a chat template describes; a JSON object without marks if it is unknown."""
    if "<tool_call>" in template:
        return _HERMES
    if "[TOOL_CALLS]" in template:
        return _LIST  # the mark is a special token, which is not a part of the text
    return _LLAMA if '"parameters"' in template and "python_tag" in template else _PLAIN


def parse_tool_calls(text: str, names: Sequence[str]) -> tuple[str, list[ToolCall]]:
    """Return the text before calls of tools with some names, and the calls; the whole text if it has none."""
    marked = list(_MARKED.finditer(text))
    if marked:
        before, parts = text[: marked[0].start()], [m[1] for m in marked]
    else:
        before, parts = "", [text]
        for mark in _STARTS[1:]:
            if mark in text:
                before, _, rest = text.partition(mark)
                parts = [rest]
    calls: list[ToolCall] = []
    for part in parts:
        found = _calls(part.strip(), names)
        if not found:
            return text, []
        calls += found
    return before.rstrip(), calls


def _calls(text: str, names: Sequence[str]) -> list[ToolCall]:
    """Return the calls in a JSON object or array; none if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    calls = []
    for item in value if isinstance(value, list) else [value]:
        arguments = item.get("arguments", item.get("parameters")) if isinstance(item, dict) else None
        if not isinstance(arguments, dict) or item.get("name") not in names:
            return []
        calls.append(ToolCall(item["name"], json.dumps(arguments, ensure_ascii=False)))
    return calls


class ToolCallFilter:
    """Passes a streamed text on up to the beginning of a call, and parses the rest at its end."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._passed = False
        self._held = ""
        self._holds = False

    def push(self, text: str) -> str:
        """Add a piece, and return the text that is certain not to belong to a call."""
        held = self._held + text
        if not self._holds:
            starts = [place for mark in _STARTS if (place := held.find(mark)) >= 0]
            if not self._passed and held.lstrip()[:1] in ("{", "["):
                starts.append(0)
            if starts:
                self._holds, place = True, min(starts)
            else:
                longest = max(map(len, _STARTS))
                ends = (
                    k for k in range(min(longest, len(held)), 0, -1) if any(s.startswith(held[-k:]) for s in _STARTS)
                )
                place = len(held) - next(ends, 0)
                if not self._passed and not held[:place].strip():
                    place = 0
            out, held = held[:place], held[place:]
            self._passed = self._passed or bool(out)
        else:
            out = ""
        self._held = held
        return out

    def finish(self) -> tuple[str, list[ToolCall]]:
        """Return the rest of the text, and the calls."""
        text, calls = parse_tool_calls(self._held, self._names)
        self._held = ""
        return text, calls
