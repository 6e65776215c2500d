"""`polyhal chat`: a conversation with a language model on the terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.reporting import fail, reported, sentence
from polyhal.commands.language_options import (
    AdapterFolder,
    CacheDType,
    ContextLength,
    DeviceName,
    DraftPath,
    LookupFlag,
    ModelPath,
    WeightDType,
    load_for_answers,
    speed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from polyhal.llm import Conversation, LanguageModel

_HELP = (
    ("/help", "show these commands"),
    ("/reset", "forget the conversation"),
    ("/system TEXT", "set the system message, or show it"),
    ("/retry", "answer the last question again"),
    ("/temperature X", "0 always takes the most likely token"),
    ("/top-k N, /top-p X", "sample only from the most likely tokens"),
    ("/max-tokens N", "limit the length of answers"),
    ("/seed N", "equal seeds give equal answers"),
    ("/save FILE, /load FILE", "write the conversation to a file, and read it"),
    ("/quit", "end, as Ctrl-D does; Ctrl-C stops an answer"),
)
_CONTROLS = {i: "\ufffd" for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"}
"""Characters with which a model could move the cursor or change the terminal."""
_NUMBERS = {"temperature": float, "top_k": int, "top_p": float, "seed": int, "max_tokens": int}


@reported
def chat(
    model: ModelPath,
    system: Annotated[str, typer.Option(help="The system message.", show_default=False)] = "",
    context: ContextLength = None,
    max_tokens: Annotated[int | None, typer.Option(help="The largest number of tokens of an answer.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 always takes the most likely token.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample only from this many of the most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample only from tokens with this total probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; equal seeds give equal answers.")] = None,
    dtype: WeightDType = None,
    cache_dtype: CacheDType = None,
    adapter: AdapterFolder = None,
    draft: DraftPath = None,
    lookup: LookupFlag = False,
    device: DeviceName = None,
) -> None:
    """Talk to a language model. Type [bold]/help[/] for commands; Ctrl-C stops an answer, Ctrl-D ends.

    The model's files have the defaults of settings that are not given.
    """
    from rich.console import Console

    from polyhal.cli.display import status_line
    from polyhal.llm import ChatSettings, Conversation

    console = Console(highlight=False)
    settings = ChatSettings(temperature, top_k, top_p, seed, max_tokens, lookup)
    with status_line(console, f"loading {model}"):
        loaded = load_for_answers(model, device, dtype, context, adapter, draft, lookup, cache_dtype)
        loaded.template()
        conversation = Conversation(loaded, settings)
        conversation.set_number("max_tokens", max_tokens)  # raises ValueError for any number outside of its range
    conversation.system = system
    if console.is_terminal:
        _greet(console, loaded)
    _Terminal(console, conversation).run()


def _greet(console: Console, model: LanguageModel) -> None:
    from polyhal.cli.display import memory, say_wrapped

    files = model.files
    facts = f"{files.parameters:,} parameters, {files.format}, {memory(files.nbytes)}"
    say_wrapped(console, f"{files.name}: {facts}; on {model.model.device}, {model.context} tokens of context", "bold")
    say_wrapped(console, "/help lists commands. Ctrl-C stops an answer, Ctrl-D ends.", "dim")


class _Terminal:
    """Reads lines, and writes answers as they come."""

    def __init__(self, console: Console, conversation: Conversation) -> None:
        self._console, self._conversation = console, conversation

    def run(self) -> None:
        """Read until the end of the input or /quit."""
        while (line := self._read()) is not None:
            if not line.strip():
                continue
            if line.startswith("/"):
                if not self._command(line):
                    return
            else:
                self._write(self._conversation.ask(line))

    def _read(self) -> str | None:
        """Return the next message; a line that ends with a backslash continues in the next. None at the end."""
        is_terminal = sys.stdin.isatty() and self._console.is_terminal
        lines: list[str] = []
        while True:
            try:
                line = input(("... " if lines else "> ") if is_terminal else "")
            except EOFError:
                if is_terminal:
                    self._console.print()
                return "\n".join(lines) if lines else None
            except KeyboardInterrupt:
                if not lines:
                    self._console.print()
                    return None
                lines = []
                self._console.print()
                continue
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines)

    def _write(self, answer: Iterator[str]) -> None:
        """Write an answer. Ctrl-C stops it, and the conversation keeps its beginning."""
        talk = self._conversation
        begin = time.perf_counter()
        try:
            for number, part in enumerate(answer):
                if not number and talk.dropped:
                    self._note(f"(the context is full: the oldest {talk.dropped} messages are left out)")
                sys.stdout.write(part.translate(_CONTROLS))
                sys.stdout.flush()
        except KeyboardInterrupt:
            answer.close()  # type: ignore[attr-defined]
            sys.stdout.write(" ...")
        except (ValueError, MemoryError) as error:
            fail(sentence(error))
            return
        sys.stdout.write("\n")
        sys.stdout.flush()
        if self._console.is_terminal:
            seconds = time.perf_counter() - begin
            if talk.answer is not None:
                self._note(speed(talk.answer, seconds))

    def _note(self, text: str) -> None:
        from polyhal.cli.display import say_wrapped

        say_wrapped(self._console, text, "dim")

    def _command(self, line: str) -> bool:
        """Run a command, and return whether to go on."""
        name, _, rest = line[1:].strip().partition(" ")
        name, rest, talk = name.replace("-", "_"), rest.strip(), self._conversation
        from polyhal.cli.display import count

        try:
            if name in ("quit", "exit", "bye"):
                return False
            if name == "help":
                for command, meaning in _HELP:
                    self._console.print(f"{command:24}{meaning}", markup=False)
            elif name == "reset":
                talk.reset()
            elif name == "retry":
                self._write(talk.ask_again())
            elif name == "system":
                if rest:
                    talk.system = rest
                self._note(talk.system or "(no system message)")
            elif name in ("save", "load"):
                if not rest:
                    raise ValueError(f"/{name} has no file; expected /{name} FILE")
                path = Path(rest).expanduser()
                (talk.save if name == "save" else talk.load)(path)
                number = len(talk.messages)
                self._note(f"{count(number, 'message')} {'saved to' if name == 'save' else 'loaded from'} {path}")
            elif name in _NUMBERS:
                if rest:
                    talk.set_number(name, None if rest == "default" else _number(name, rest))
                self._note(f"{name.replace('_', '-')} {_shown(talk, name)}")
            else:
                fail(f"unknown command {line.split()[0]}; /help lists all")
        except (OSError, ValueError) as error:
            fail(sentence(error))
        except Exception as error:
            from polyhal.hal.errors import PolyhalError

            if not isinstance(error, PolyhalError):
                raise
            fail(sentence(error))
        return True


def _shown(talk: Conversation, name: str) -> str:
    """Return a setting, or the value that it has without one."""
    stated = getattr(talk.settings, name)
    if stated is not None:
        return str(stated)
    own = getattr(talk.model.sampling(), name, None)
    return f"default ({own})" if own is not None else "default (no limit)" if name != "seed" else "default (random)"


def _number(name: str, text: str) -> float:
    """Read a number of a command. Raises ValueError."""
    kind: Callable[[str], float] = _NUMBERS[name]
    try:
        return kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise ValueError(f"/{name.replace('_', '-')} {text}; expected {expected}, or default") from None
