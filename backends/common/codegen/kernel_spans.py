"""Positions of kernels in a file of OpenCL C, so that a program can leave out kernels that it does not run.

A driver compiles all kernels of a program. A file has up to seven, and a device runs one or two with equal definitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BEGINNING = re.compile(r"^__kernel\b[^{;]*?\bvoid\s+(\w+)\s*\([^{;]*\{", re.MULTILINE)
_BRACE = re.compile(r"[{}]")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)", re.MULTILINE)

Spans = Mapping[str, list[tuple[int, int]]]


def kernel_spans(text: str) -> Spans:
    """Return the start and the end of every definition of a kernel, by the kernel's name.

    Kernels that a macro defines, and kernels that share a directive of the preprocessor with other code, are left out.
    """
    bare = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment.group()), text)
    spans: dict[str, list[tuple[int, int]]] = {}
    for found in _BEGINNING.finditer(bare):
        depth, end = 1, 0
        for brace in _BRACE.finditer(bare, found.end()):
            depth += 1 if brace.group() == "{" else -1
            if not depth:
                end = brace.end()
                break
        if end and _is_independent(bare[found.start() : end]):
            spans.setdefault(found[1], []).append((found.start(), end))
    return spans


def _is_independent(definition: str) -> bool:
    """Return whether a definition ends all conditionals that it begins, and defines no macro."""
    depth = 0
    for directive in _DIRECTIVE.findall(definition):
        if directive in ("define", "undef"):
            return False
        depth += directive.startswith("if") - (directive == "endif")
        if depth < 0 or (not depth and directive.startswith("el")):
            return False
    return not depth


def only_kernel(text: str, spans: Spans, kernel: str) -> str:
    """Return the text with blank lines in place of all kernels except one; unchanged if it is not among the spans."""
    if kernel not in spans:
        return text
    for start, end in sorted((s for name, all_of in spans.items() if name != kernel for s in all_of), reverse=True):
        text = text[:start] + "\n" * text.count("\n", start, end) + text[end:]
    return text
