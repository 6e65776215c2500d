"""The training text of a language model: a file, or Python's standard library as a text that every machine has."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from polyhal.hal.errors import PolyhalError, message

LIBRARY = "python"
"""Name of the corpus of the interpreter's standard library."""
_LIBRARY_BYTES = 2 << 20


class CorpusError(PolyhalError, ValueError):
    """The training text is missing, unreadable, empty, not text or too short."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text with its origin. `source` is an absolute path, or LIBRARY."""

    name: str
    source: str
    text: str

    @property
    def sha256(self) -> str:
        """Digest of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read(path: Path | None) -> Corpus:
    """Read a UTF-8 file, or the standard library for None. Raises CorpusError."""
    return library() if path is None else _read_file(path)


def _read_file(path: Path) -> Corpus:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorpusError(message(None, f"file {path} does not exist", expected="the path of a text file")) from None
    except IsADirectoryError:
        raise CorpusError(message(None, f"{path} is a folder", expected="the path of a text file")) from None
    except OSError as error:
        raise CorpusError(message(None, f"{path} cannot be read: {error.strerror or error}")) from error
    if not data.strip():
        raise CorpusError(message(None, f"{path} is empty", expected="a text of at least some thousand characters"))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(
            message(
                None,
                f"{path} is not text: byte {error.start} ({data[error.start]:#04x}) is not valid UTF-8",
                expected="a UTF-8 text file",
            )
        ) from None
    if "\0" in text:
        raise CorpusError(
            message(None, f"{path} is not text: byte {data.index(0)} is zero", expected="a UTF-8 text file")
        )
    # Normalize line ends, as in text mode, so that a text trains the same model on every system.
    return Corpus(path.stem or path.name, str(path.resolve()), text.replace("\r\n", "\n"))


def library() -> Corpus:
    """Return the top-level modules of the standard library, sorted by name, up to 2 MiB.

    Only ASCII files: a few test strings in other alphabets would double a character vocabulary. Raises CorpusError if Python
    was installed without sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    parts: list[str] = []
    size = 0
    for path in sorted(folder.glob("*.py")):
        try:
            text = path.read_text(encoding="ascii")
        except (UnicodeDecodeError, OSError):  # not ASCII or unreadable: the other modules suffice
            continue
        if size + len(text) > _LIBRARY_BYTES:
            break
        parts.append(text)
        size += len(text)
    if not parts:
        raise CorpusError(
            message(
                None,
                f"this Python was installed without the sources of its library ({folder})",
                fix="name a text file: polyhal train FILE",
            )
        )
    return Corpus(LIBRARY, LIBRARY, "\n".join(parts))
