"""Standard links and drivers, to which cards refer by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any

from polyhal.hal.core.settings import toml


@functools.cache
def standard_tables(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of `links.toml` or `drivers.toml` by name. `kind` is the name of the file."""
    return toml.parse(resources.files("polyhal.hal.core.hardware").joinpath(f"{kind}.toml").read_text(encoding="utf-8"))
