"""Docstrings, which are Markdown, in the reStructuredText that autodoc reads."""

from __future__ import annotations

import re

_CODE = re.compile(r"(?<![`\\])`([^`]+)`(?!`)")
_NAME = re.compile(r"[A-Za-z_][\w.]*[\w]|[A-Za-z_]")


def to_restructured_text(lines: list[str]) -> list[str]:
    """Return a docstring with code as literals or references and all other marks escaped; examples stay as they are."""
    paragraphs = re.split(r"(\n[ \t]*\n)", "\n".join(lines))
    return "".join(p if p.lstrip().startswith(">>>") else _marked(p) for p in paragraphs).split("\n")


def _marked(text: str) -> str:
    out, end = [], 0
    for match in _CODE.finditer(text):
        out.append(_escaped(text[end : match.start()]))
        before = "\\ " if re.search(r"[\w)\]]\Z", text[: match.start()]) else ""
        after = "\\ " if re.match(r"\w", text[match.end() :]) else ""
        out.append(f"{before}{_code(match.group(1))}{after}")
        end = match.end()
    return "".join([*out, _escaped(text[end:])])


def _code(text: str) -> str:
    if _NAME.fullmatch(text):
        return f":py:obj:`{text}`"
    return f"``{text.strip()}``"


def _escaped(text: str) -> str:
    return re.sub(r"(?<=\w)_(?!\w)", r"\\_", re.sub(r"([\\*|`])", r"\\\1", text))
