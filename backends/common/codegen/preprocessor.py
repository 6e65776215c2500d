"""A small C preprocessor for kernel files: conditionals, macros with and without parameters, and `##`.

It finds the declarations of kernels and of their parameter types without a driver: drivers do not keep parameter names,
or only with an option that changes the program. Each file is scanned once; each set of definitions then costs one walk
over the directives. Macros predefined by compilers are unknown, so signatures must not depend on them.

Source: ISO/IEC 9899:1999, 6.10. Macros expand by D. Prosser's algorithm with hide sets (X3J11/86-196).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from polyhal.backends.common.codegen.constant_expression import evaluate
from polyhal.backends.common.codegen.templating import Definitions

_TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.]*|"(?:\\.|[^"\\])*"|##|&&|\|\||<<|>>|[<>=!]=|\S')
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DIRECTIVE = r"^[ \t]*\#[ \t]*(?P<directive>\w+)[ \t]*(?P<rest>[^\\\n]*(?:\\[\s\S][^\\\n]*)*)$"
_INSIDE = re.compile(rf"{_DIRECTIVE}|(?P<mark>[{{}};])", re.MULTILINE)
"""Pattern of positions where a declaration may be interrupted or end."""
_DIRECTIVES = re.compile(_DIRECTIVE, re.MULTILINE)
_DEFINE = re.compile(r"(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro. `parameters` is None for an object-like macro."""

    name: str
    parameters: tuple[str, ...] | None
    body: str


Macros = dict[str, Macro]


@dataclass(slots=True)
class _Item:
    """A directive, or, as `text`, a piece of a declaration; `last` ends the declaration."""

    kind: str
    text: str
    macro: Macro | None = None
    last: bool = False
    following: int = 0
    """Index of a conditional directive's next branch, or else of its `#endif`."""
    end: int = 0
    """Index of a conditional directive's `#endif`."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A kernel up to its body, with macros expanded."""

    tokens: list[str]
    _types: Mapping[str, str]
    _macros: Macros

    def typedef(self, name: str) -> list[str]:
        """Return the tokens of the typedef of that name, with the kernel's macros expanded; none if it does not exist."""
        text = self._types.get(name)
        return [] if text is None else expand(text, self._macros)


class Declarations:
    """The declarations in a folder of kernel files: typedefs, and kernels up to their bodies."""

    def __init__(self, read: Callable[[str], str], kernel_words: str) -> None:
        """Read files with `read(name)`; the pattern `kernel_words` matches the words that begin a kernel."""
        self._read = read
        self._outside = re.compile(rf"{_DIRECTIVE}|\b(?P<mark>{kernel_words}|typedef)\b", re.MULTILINE)
        self._files: dict[str, list[_Item]] = {}

    def forget(self) -> None:
        """Drop the cached scans, so that files are read again."""
        self._files.clear()

    def of(self, name: str, definitions: Definitions, kernel: str = "") -> Iterator[Declaration]:
        """Yield the active kernels of a file and its headers; with `kernel`, only declarations that contain it.

        Raises ValueError if the file cannot be parsed.
        """
        macros = _macros(definitions)
        types: dict[str, str] = {}
        for text in self._walk(name, macros):
            if text.startswith("typedef"):
                types[text.rstrip().rpartition(" ")[2]] = text
            elif kernel in text:
                yield Declaration(expand(text, macros), types, macros)

    def _walk(self, name: str, macros: Macros, within: tuple[str, ...] = ()) -> Iterator[str]:
        """Yield the declarations of a file; `macros` is updated to the macros that apply to each.

        `within` lists the files that include it. Raises ValueError for a file that includes itself.
        """
        if name in within:
            raise ValueError(f"{' includes '.join([*within, name])}; expected files that do not include themselves")
        items = self._items(name)
        pieces: list[str] = []
        at = 0
        while at < len(items):
            item = items[at]
            kind = item.kind
            at += 1
            if item.macro is not None:
                macros[item.macro.name] = item.macro
            elif kind == "text":
                pieces.append(item.text)
                if item.last:
                    yield " ".join(pieces)
                    pieces.clear()
            elif kind in ("if", "ifdef", "ifndef"):
                while not _holds(item, macros):
                    at = item.following
                    item = items[at]
                    at += 1
            elif kind in ("elif", "else"):  # the end of the previous, active branch
                at = item.end
            elif kind == "include":
                yield from self._walk(item.text.strip('"'), macros, (*within, name))
            elif kind == "undef":
                macros.pop(item.text, None)
        if pieces:
            raise ValueError(f"{name}: the declaration that begins with {pieces[0]} must end outside of #if")

    def _items(self, name: str) -> list[_Item]:
        items = self._files.get(name)
        if items is None:
            text = _COMMENT.sub(lambda match: match.group(1) or " ", self._read(name))
            items = self._files[name] = list(self._scan(text))
            _link(items)
        return items

    def _scan(self, text: str) -> Iterator[_Item]:
        """Yield the directives and declarations of a text without comments; directives split declarations into pieces."""
        at, depth, declared = 0, 0, ""
        while match := (_INSIDE if declared else self._outside).search(text, at):
            start, at, mark = at, match.end(), match["mark"]
            if mark is None:
                if declared:
                    yield _Item("text", text[start : match.start()])
                yield _directive(match["directive"], match["rest"].replace("\\\n", " ").strip())
            elif not declared:
                declared, depth = mark, 0
                yield _Item("text", mark)
            else:
                depth += (mark == "{") - (mark == "}")
                last = mark == "{" if declared != "typedef" else mark == ";" and not depth
                yield _Item("text", text[start : match.start() if last else at], last=last)
                declared = "" if last else declared


class ActiveText(Declarations):
    """All text of kernel files in active branches."""

    def __init__(self, read: Callable[[str], str]) -> None:
        """Read files with `read(name)`."""
        super().__init__(read, "")

    def pieces(self, name: str, definitions: Definitions) -> Iterator[tuple[str, Macros]]:
        """Yield the text between directives of a file and its headers, each piece with its active macros."""
        macros = _macros(definitions)
        for text in self._walk(name, macros):
            yield text, macros

    def _scan(self, text: str) -> Iterator[_Item]:
        at = 0
        for match in _DIRECTIVES.finditer(text):
            yield _Item("text", text[at : match.start()], last=True)
            yield _directive(match["directive"], match["rest"].replace("\\\n", " ").strip())
            at = match.end()
        yield _Item("text", text[at:], last=True)


def _macros(definitions: Definitions) -> Macros:
    """Return the macros of a program's definitions."""
    macros = [_macro(f"{k} {int(v) if isinstance(v, bool) else v}") for k, v in definitions.items()]
    return {macro.name: macro for macro in macros}


def _link(items: list[_Item]) -> None:
    """Connect the branches of conditionals."""
    open_: list[list[int]] = []
    for at, item in enumerate(items):
        if item.kind in ("if", "ifdef", "ifndef"):
            open_.append([at])
        elif item.kind in ("elif", "else", "endif"):
            items[open_[-1][-1]].following = at
            open_[-1].append(at)
        if item.kind == "endif":
            for branch in open_.pop():
                items[branch].end = at


def _holds(item: _Item, macros: Macros) -> bool:
    """Return whether the branch after a conditional directive is active."""
    if item.kind in ("else", "endif"):
        return True
    if item.kind in ("ifdef", "ifndef"):
        return (item.text in macros) == (item.kind == "ifdef")
    flag = macros.get(item.text)
    if flag is not None and flag.body in ("0", "1"):
        return flag.body == "1"
    text = _DEFINED.sub(lambda m: str(int((m.group(1) or m.group(2)) in macros)), item.text)
    return evaluate(tuple(expand(text, macros))) != 0


def _directive(kind: str, rest: str) -> _Item:
    return _Item(kind, rest, _macro(rest) if kind == "define" else None)


def _macro(text: str) -> Macro:
    """Parse the macro of a `#define`."""
    match = _DEFINE.match(text)
    if match is None:
        raise ValueError(f"cannot parse the macro {text!r}")
    name, parameters, body = match.groups()
    return Macro(name, None if parameters is None else tuple(p.strip() for p in parameters.split(",")), body.strip())


def expand(text: str, macros: Macros) -> list[str]:
    """Return the tokens of a text after macro expansion. Raises ValueError if a macro lacks arguments."""
    tokens = _tokens(text)
    if not any(t in macros for t in tokens):
        return list(tokens)
    return [text for text, _ in _Expansion(macros).expand([(t, frozenset()) for t in tokens])]


@lru_cache(maxsize=4096)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


_Token = tuple[str, frozenset[str]]
"""Text and hide set of a token. The macros of the hide set, from which it results, are not expanded in it again."""


class _Expansion:
    """The expansion of one text."""

    def __init__(self, macros: Macros) -> None:
        self._macros = macros
        self._calls: dict[tuple[object, ...], list[_Token]] = {}
        """Cached calls by hide set and arguments. Many calls are equal: STORAGE(DTYPE) for each operand."""

    def expand(self, tokens: list[_Token]) -> list[_Token]:
        done: list[_Token] = []
        rest = tokens[::-1]
        while rest:
            token = rest.pop()
            text, hidden = token
            macro = self._macros.get(text)
            if macro is None or text in hidden:
                done.append(token)
            elif macro.parameters is None:
                hidden |= {text}
                rest += [(t, hidden | h) for t, h in reversed(self._substituted(macro, {}))]
            elif rest and rest[-1][0] == "(":
                rest += reversed(self._called(macro, hidden, rest))
            else:
                done.append(token)
        return done

    def _called(self, macro: Macro, hidden: frozenset[str], rest: list[_Token]) -> list[_Token]:
        """Expand the call of a macro, with arguments popped from `rest`."""
        arguments, closing = _arguments(macro, rest)
        hidden = (hidden & closing) | {macro.name}
        key = (hidden, *map(tuple, arguments.values()))
        tokens = self._calls.get(key)
        if tokens is None:
            tokens = self.expand([(t, hidden | h) for t, h in self._substituted(macro, arguments)])
            self._calls[key] = tokens
        return tokens

    def _substituted(self, macro: Macro, arguments: dict[str, list[_Token]]) -> list[_Token]:
        """Substitute arguments for parameters in the body. They are expanded, except next to `##`, which joins two tokens."""
        body = _tokens(macro.body)
        out: list[_Token] = []
        paste = False
        for i, text in enumerate(body):
            if text == "##":
                paste = True
                continue
            joined = paste or body[i + 1 : i + 2] == ("##",)
            tokens: list[_Token] = [(text, frozenset())]
            if text in arguments:
                tokens = list(arguments[text]) if joined else self.expand(arguments[text])
            if paste and tokens and out:
                before, hidden = out.pop()
                tokens[0] = (before + tokens[0][0], hidden & tokens[0][1])
            out += tokens
            paste = False
        return out


def _arguments(macro: Macro, rest: list[_Token]) -> tuple[dict[str, list[_Token]], frozenset[str]]:
    """Pop the arguments of a call and their parentheses from `rest`.

    Return them by parameter, with the hide set of the closing one.
    """
    found: list[list[_Token]] = [[]]
    depth = 0
    while rest:
        token = rest.pop()
        text = token[0]
        depth += (text == "(") - (text == ")")
        if not depth:
            break
        if text == "," and depth == 1:
            found.append([])
        elif text != "(" or depth > 1:
            found[-1].append(token)
    else:
        raise ValueError(f"the call of the macro {macro.name} has no closing parenthesis")
    parameters = macro.parameters or ()
    if len(found) != len(parameters):
        raise ValueError(
            f"the macro {macro.name} has {len(parameters)} parameters, but the call has {len(found)} arguments"
        )
    return dict(zip(parameters, found, strict=True)), token[1]
