"""What must not leave the machine, taken out of texts: names of users and hosts, paths, secrets, identifiers of hardware."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_LONGEST = 400
"""Characters of a text from a driver: what follows are logs of compilers."""
_SHARED_NAMES = frozenset(
    {"root", "user", "admin", "ubuntu", "debian", "nvidia", "pi", "runner", "localhost", "localdomain", "linux"}
)
"""Names of accounts and hosts that images come with. They identify nobody, and some occur in the names of devices."""
_SECRET = re.compile(r"token|secret|key|passw|credential|auth|cookie", re.IGNORECASE)
"""In the names of environment variables whose values are secrets."""
_SHORTEST_SECRET = 6
_IDENTIFYING = re.compile(r"serial|uuid|luid|guid|pci|bus_?id|host_?name|path", re.IGNORECASE)
"""In the names of features that identify a device or a place."""
_PATTERNS = (
    (re.compile(r"(?<![A-Za-z0-9])[A-Za-z]:[\\/][^\s'\",;]*|\\\\[^\s'\",;]+"), "<path>"),
    (re.compile(r"(?<![\w.])(?:~\w*)?/(?:[^\s/'\",;()]+/)+[^\s/'\",;():]*|~\w*/[^\s'\",;]+"), "<path>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<address>"),
    (re.compile(r"(?i)(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<!\w)[0-9a-f]{32,}(?!\w)"), "<id>"),
    (re.compile(r"(?i)(?<!\w)(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?!\w)"), "<id>"),
    (re.compile(r"(?i)(?<!\w)[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}(?!\w)"), "<id>"),
    (re.compile(r"(?i)\b(serial(?: (?:no\.?|number))?[\s:=#]+)\S+"), r"\1<id>"),
)


class Scrubber:
    """Takes out of texts what identifies this machine, its users or its hardware, or is a secret in its environment."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        secrets = {v for k, v in environment.items() if _SECRET.search(k) and len(v) >= _SHORTEST_SECRET}
        self._secrets = sorted(secrets, key=len, reverse=True)
        names = sorted(_names(environment), key=len, reverse=True)
        words = "|".join(map(re.escape, names)) or "(?!)"
        self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE)

    def text(self, text: str) -> str:
        """One printable line of at most 400 characters without personal data."""
        for secret in self._secrets:
            text = text.replace(secret, "<secret>")
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = self._names.sub("<name>", text)
        line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."

    def features(self, features: Mapping[str, str]) -> dict[str, str]:
        """Facts about a device without those whose names say that they identify it."""
        return {self.text(k): self.text(str(v)) for k, v in features.items() if not _IDENTIFYING.search(k)}

    def data(self, value: Any) -> Any:
        """Plain data with every text in it scrubbed. Keys stay: they are names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {k: self.data(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(v) for v in value]
        return value


def _names(environment: Mapping[str, str]) -> Iterable[str]:
    """The names of the user and of the host, each as a whole and the host's first part."""
    found = {environment.get(v, "") for v in ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "HOSTNAME", "COMPUTERNAME")}
    found |= {platform.node(), Path(environment.get("HOME") or environment.get("USERPROFILE") or "").name}
    try:
        found.add(getpass.getuser())
    except (OSError, KeyError, ImportError):  # an account without a name, as in some containers
        found.add("")
    found |= {name.partition(".")[0] for name in found}
    return {name for name in found if name and name.lower() not in _SHARED_NAMES}
