"""Removal of personal data from texts: names of users and hosts, paths, secrets, identifiers of hardware."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_LONGEST = 400
"""Maximum characters of a driver's text: the rest are compiler logs."""
_SHARED_NAMES = frozenset(
    {"root", "user", "admin", "ubuntu", "debian", "nvidia", "pi", "runner", "localhost", "localdomain", "linux"}
)
"""Default names of accounts and hosts in system images. They identify nobody, and some occur in the names of devices."""
_SECRET = re.compile(r"token|secret|key|passw|credential|auth|cookie", re.IGNORECASE)
"""Pattern for names of environment variables whose values are secrets."""
_SHORTEST_SECRET = 6
_IDENTIFYING = re.compile(r"serial|uuid|luid|guid|pci|bus_?id|host_?name|path", re.IGNORECASE)
"""Pattern for names of features that identify a device or a location."""
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
    """Removes identifiers of this machine, its users and its hardware from texts, and secrets of its environment."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        secrets = {v for k, v in environment.items() if _SECRET.search(k) and len(v) >= _SHORTEST_SECRET}
        self._secrets = sorted(secrets, key=len, reverse=True)
        names = sorted(_names(environment), key=len, reverse=True)
        words = "|".join(map(re.escape, names)) or "(?!)"
        self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE)

    def text(self, text: str) -> str:
        """Return one printable line of at most 400 characters without personal data."""
        for secret in self._secrets:
            text = text.replace(secret, "<secret>")
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = self._names.sub("<name>", text)
        line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."

    def features(self, features: Mapping[str, str]) -> dict[str, str]:
        """Return properties of a device, without those whose names suggest an identifier."""
        return {self.text(k): self.text(str(v)) for k, v in features.items() if not _IDENTIFYING.search(k)}

    def data(self, value: Any) -> Any:
        """Scrub all texts in plain data. Keys are unchanged: they are names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {k: self.data(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(v) for v in value]
        return value


def _names(environment: Mapping[str, str]) -> Iterable[str]:
    """Return the names of the user and of the host, and the host's first label."""
    found = {environment.get(v, "") for v in ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "HOSTNAME", "COMPUTERNAME")}
    found |= {platform.node(), Path(environment.get("HOME") or environment.get("USERPROFILE") or "").name}
    try:
        found.add(getpass.getuser())
    except (OSError, KeyError, ImportError):  # the account has no name, as in some containers
        found.add("")
    found |= {name.partition(".")[0] for name in found}
    return {name for name in found if name and name.lower() not in _SHARED_NAMES}
